"""Train two linear heads on frozen features of pictures and texts by CLIP's loss, and measure their retrieval."""

import numpy as np

WIDTH = 128  # of the common space
BATCH = 256
RATE = 1e-2  # of Adam at its highest; a cosine lowers it to 0
SCALE = np.log(1 / 0.07)  # the first logarithm of the logits' factor, which stays below MOST_SCALE (CLIP, 2.5)
MOST_SCALE = np.log(100.0)
TOP = 5
Heads = tuple[np.ndarray, np.ndarray]
Features = tuple[np.ndarray, np.ndarray]


def loss_and_gradients(
    features: Features, heads: Heads, log_scale: float
) -> tuple[float, tuple[np.ndarray, np.ndarray, float]]:
    """Return CLIP's loss of a batch of pairs, and its gradients by both heads and by ``log_scale``.

    ``features``: pictures (b, d1) and texts (b, d2); row i of both is a pair. ``heads``: (d1, w) and (d2, w). The loss
    is the mean of the two cross entropies over rows and columns of exp(log_scale) x the cosines (Radford et al. 2021,
    arXiv 2103.00020, figure 3), in nats.
    """
    n, scale, units, norms = len(features[0]), np.exp(log_scale), [], []
    for rows, head in zip(features, heads, strict=True):
        projected = rows @ head
        norms.append(np.maximum(np.linalg.norm(projected, axis=1, keepdims=True), 1e-8))
        units.append(projected / norms[-1])
    cosines = units[0] @ units[1].T
    logits = scale * cosines
    raised = np.exp(logits - logits.max())  # cosines differ by 2 at most: no row or column of these is all 0
    by_row, by_column = raised / raised.sum(1, keepdims=True), raised / raised.sum(0)
    right = np.arange(n)
    both = by_row[right, right] * by_column[right, right]
    loss = float(-np.log(np.maximum(both, 1e-30)).mean() / 2)
    slope = by_row + by_column
    slope[right, right] -= 2
    slope /= 2 * n
    pulls = (slope @ units[1] * scale, slope.T @ units[0] * scale)
    gradients = [
        rows.T @ ((pull - unit * (unit * pull).sum(1, keepdims=True)) / norm)
        for rows, pull, unit, norm in zip(features, pulls, units, norms, strict=True)
    ]
    return loss, (gradients[0], gradients[1], float((slope * cosines).sum() * scale))


def train_heads(features: Features, pairs: np.ndarray, samples: int, seed: int, most: int = BATCH) -> Heads:
    """Train heads float32 (d1, w) and (d2, w) on ``pairs`` from random weights; equal arguments give equal heads.

    ``features``: pictures (n, d1) and texts (m, d2), any float type or memory maps, of which a batch is read at a time.
    ``pairs``: (p, 2) row numbers of both. ``samples``: how many pairs are seen, whatever p is; each epoch has another
    order. ``most``: pairs of a batch, at most p: arms that are compared need equal ones, as a batch is a step and the
    wrong texts of each other. Adam without weight decay (Kingma and Ba 2014). A sample costs some 2 MFLOP at 512
    dimensions.
    """
    rng = np.random.default_rng(seed)
    width = min(WIDTH, *(each.shape[1] for each in features))
    sizes = [each.shape[1] for each in features]
    weights = [(rng.standard_normal((size, width)) / size**0.5).astype(np.float32) for size in sizes]
    moments = [[np.zeros_like(each), np.zeros_like(each)] for each in weights] + [[0.0, 0.0]]
    log_scale, batch = SCALE, min(most, len(pairs))
    steps, order = max(1, samples // batch), np.empty(0, np.int64)
    for step in range(1, steps + 1):
        if len(order) < batch:
            order = np.concatenate([order, rng.permutation(len(pairs))])
        rows, order = np.sort(order[:batch]), order[batch:]
        seen = (features[0][pairs[rows, 0]].astype(np.float32), features[1][pairs[rows, 1]].astype(np.float32))
        _, gradients = loss_and_gradients(seen, (weights[0], weights[1]), log_scale)
        rate = RATE * (1 + np.cos(np.pi * step / steps)) / 2
        for n, gradient in enumerate(gradients):
            mean, square = moments[n] = [
                0.9 * moments[n][0] + 0.1 * gradient,
                0.98 * moments[n][1] + 0.02 * gradient * gradient,
            ]
            move = rate * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.98**step)) + 1e-8)
            if n < 2:
                weights[n] -= move
            else:
                log_scale = min(float(log_scale - move), MOST_SCALE)
    return weights[0], weights[1]


def recall(features: Features, heads: Heads, texts: np.ndarray) -> float:
    """Return the mean of R@5 from texts to pictures and from pictures to texts, 0 to 1, among these pairs alone.

    ``features``: pictures (q, d1) and texts (q, d2) of the pairs. ``texts``: (q,) ids of the texts; a picture of an
    equal text is as right as the text's own.
    """
    units = [rows.astype(np.float32) @ head for rows, head in zip(features, heads, strict=True)]
    units = [each / np.maximum(np.linalg.norm(each, axis=1, keepdims=True), 1e-8) for each in units]
    cosines, top = units[0] @ units[1].T, min(TOP, len(texts))
    found = []
    for table in (cosines, cosines.T):
        best = np.argpartition(-table, top - 1, axis=1)[:, :top]
        found.append((texts[best] == texts[:, None]).any(1).mean())
    return float(np.mean(found))
