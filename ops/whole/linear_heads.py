"""Train two linear heads on frozen features of pictures and texts by CLIP's loss, and measure their retrieval."""

from math import cos, log, pi

import numpy as np

WIDTH = 128  # of the common space
BATCH = 256
RATE = 1e-2  # of Adam at its highest; a cosine lowers it to 0
SCALE = log(1 / 0.07)  # the first logarithm of the logits' factor, which stays below MOST_SCALE (CLIP, 2.5)
MOST_SCALE = log(100.0)
TOP = 5
Heads = tuple[np.ndarray, np.ndarray]
Features = tuple[np.ndarray, np.ndarray]


def train_heads(features: Features, pairs: np.ndarray, samples: int, seed: int, most: int = BATCH) -> Heads:
    """Train heads float32 (d1, w) and (d2, w) on ``pairs`` from random weights; equal arguments give equal heads.

    ``features``: pictures (n, d1) and texts (m, d2), any float type or memory maps, of which a batch is read at a time.
    ``pairs``: (p, 2) row numbers of both. ``samples``: how many pairs are seen, whatever p is; each epoch has another
    order. ``most``: pairs of a batch, at most p: arms that are compared need equal ones, as a batch is a step and the
    wrong texts of each other. The loss is CLIP's (Radford et al. 2021, arXiv 2103.00020, figure 3), by Adam without
    weight decay. A sample costs some 2 MFLOP at 512 dimensions.
    """
    import torch  # 3 CPU s
    from torch.nn.functional import cross_entropy, normalize

    rng = np.random.default_rng(seed)
    sizes = [each.shape[1] for each in features]
    width = min(WIDTH, *sizes)
    weights = [(rng.standard_normal((size, width)) / size**0.5).astype(np.float32) for size in sizes]
    heads = [torch.from_numpy(each).requires_grad_() for each in weights]
    log_scale, batch = torch.tensor(SCALE, requires_grad=True), min(most, len(pairs))
    steps, order, right = max(1, samples // batch), np.empty(0, np.int64), torch.arange(batch)
    adam = torch.optim.Adam([*heads, log_scale], RATE, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(adam, lambda step: (1 + cos(pi * (step + 1) / steps)) / 2)
    for _ in range(steps):
        if len(order) < batch:
            order = np.concatenate([order, rng.permutation(len(pairs))])
        rows, order = np.sort(order[:batch]), order[batch:]
        seen = (np.asarray(each[pairs[rows, n]], np.float32) for n, each in enumerate(features))
        units = [normalize(torch.from_numpy(each) @ head, eps=1e-8) for each, head in zip(seen, heads, strict=True)]
        logits = log_scale.exp() * units[0] @ units[1].T
        adam.zero_grad()
        ((cross_entropy(logits, right) + cross_entropy(logits.T, right)) / 2).backward()
        adam.step()
        schedule.step()
        with torch.no_grad():
            log_scale.clamp_(max=MOST_SCALE)
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
