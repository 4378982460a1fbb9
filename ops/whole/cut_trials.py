"""Compare selections of one pool of pairs by what linear heads learn from each, with paired seeds and t-intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import cos, log, pi

import numpy as np

from pairmill.ops.whole import kmeans

WIDTH = 128  # of the common space
BATCH = 256
RATE = 1e-2  # of Adam at its highest; a cosine lowers it to 0
SCALE = log(1 / 0.07)  # the first logarithm of the logits' factor, which stays below MOST_SCALE (CLIP, 2.5)
MOST_SCALE = log(100.0)
TOP = 5
Heads = tuple[np.ndarray, np.ndarray]
Features = tuple[np.ndarray, np.ndarray]


def train_heads(features: Features, pairs: np.ndarray, samples: int, seed: int, most: int = BATCH) -> Heads:
    """Train two linear heads, float32 (d1, w) and (d2, w), on ``pairs``. Equal arguments give equal heads.

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
    """Return recall@5, [0, 1], of retrieval among these pairs: the mean of text to picture and picture to text.

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


SEEDS = 8  # the fewest: with 4 a t-interval is 1.4 times as wide as with 8 of the same spread
LEVEL, POWER = 0.95, 0.8
HELD = 0.25  # share of the kinds that no arm trains on, and of the pairs of the other kinds
MOST_HELD = 1_000  # pairs of one held-out set: a table of 1M cosines
FEWEST = 20  # pairs of a held-out set that says something
SAMPLES = (60, 40_000, 1_000_000)  # seen in a training: so many a pair of the pool, at least and at most
MOST_KINDS, CENTRED = 256, 100_000
UNSEEN = "unseen"


@dataclass(frozen=True)
class Gain:
    """Mean of paired differences over seeds, with half of its t-interval at LEVEL.

    ``detectable`` is the smallest true difference that such an interval would tell from 0 with the chance POWER; the
    verdict is 'better' or 'worse' only for an interval without 0 and a mean of at least ``detectable``.
    """

    mean: float
    half: float
    detectable: float

    @property
    def verdict(self) -> str:
        """'better', 'worse' or 'too few to tell'."""
        if abs(self.mean) <= self.half or abs(self.mean) < self.detectable:
            return "too few to tell"
        return "better" if self.mean > 0 else "worse"


def difference(values: Sequence[float], detectable: float | None = None) -> Gain:
    """Return the mean of paired differences with its t-interval, for 2 values or more.

    ``detectable`` is known beforehand from controls; None computes it from the spread of the values over seeds:
    (t(.975) + t(.8)) x standard deviation / sqrt(n), with n - 1 degrees of freedom.
    """
    from scipy.stats import t  # 0.5 CPU s

    n = len(values)
    error = float(np.std(values, ddof=1)) / n**0.5
    quantile, power = (float(t.ppf(at, n - 1)) for at in ((1 + LEVEL) / 2, POWER))
    seen = (quantile + power) * error if detectable is None else detectable
    return Gain(float(np.mean(values)), quantile * error, seen)


def centred(vectors: np.ndarray) -> np.ndarray:
    """Subtract the mean of CENTRED rows of vectors (n, d), scale rows to length 1; return float16 (n, d).

    Without it all vectors of a tower share a large part, which heads would first have to unlearn.
    """
    mean = np.asarray(vectors[:: max(1, len(vectors) // CENTRED)], np.float32).mean(0)
    found = np.empty(vectors.shape, np.float16)
    for first in range(0, len(vectors), CENTRED):
        rows = vectors[first : first + CENTRED].astype(np.float32) - mean
        found[first : first + CENTRED] = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-8)
    return found


def kinds_of(pictures: np.ndarray) -> np.ndarray:
    """Cluster vectors (n, d) of length 1 into about sqrt(n) kinds of two members or more; return numbers int (n,).

    Raises ValueError if n < 2 x FEWEST, or even four kinds leave one with a single picture: it cannot be held out.
    """
    wanted = min(MOST_KINDS, round(len(pictures) ** 0.5))
    if len(pictures) < 2 * FEWEST:
        raise ValueError(f"{len(pictures)} pictures; a proof needs {2 * FEWEST} with a text at the least")
    while True:
        _, found, sizes = np.unique(
            kmeans.assign(pictures, kmeans.train(pictures, wanted))[:, 0], return_inverse=True, return_counts=True
        )
        if sizes.min() > 1 and len(sizes) > 2:
            return found
        if wanted <= 4:
            raise ValueError("a kind that would be held out has a single picture, even of four kinds")
        wanted = max(4, wanted * 3 // 4)


def samples_seen(pairs: int) -> int:
    """Return the number of samples that each training draws, repeats included, from a pool of ``pairs`` raw pairs."""
    per_pair, least, most = SAMPLES
    return min(max(per_pair * pairs, least), most)


@dataclass(frozen=True)
class Pool:
    """Pairs to train on and to hold out."""

    features: Features  # pictures (n, d1) and texts (m, d2), `centred`
    kinds: np.ndarray  # the kind of each picture, int (n,)
    raw: np.ndarray  # (p, 2) row numbers of all pairs, one a picture
    right: np.ndarray  # (q, 2) those of the pairs to hold out; ``raw`` unless truth is known

    def kept_kinds(self, arm: np.ndarray) -> np.ndarray:
        """Return whether a cut keeps at least its overall share of each kind, bool (kinds,)."""
        n = self.kinds.max() + 1
        whole, kept = (np.bincount(self.kinds[np.unique(each[:, 0])], minlength=n) for each in (self.raw, arm))
        return kept * len(self.raw) >= whole * len(np.unique(arm[:, 0]))


def recalls(
    pool: Pool, arms: Mapping[str, np.ndarray], sets: Mapping[str, np.ndarray], seed: int, least: int
) -> dict[str, dict[str, float]]:
    """Train heads on each arm, all with equal samples and held-out pairs; return arm -> held-out set -> R@5.

    ``arms``: (p, 2) rows of pairs. ``sets``: bool (kinds,) by name. The seed draws HELD of the kinds, which no arm
    trains on (the set UNSEEN), HELD of the other kinds' pairs, which are held out by set, and the first weights. A set
    of fewer than FEWEST pairs gives NaN. ``least``: pairs of the smallest of all arms that are compared; batches have
    half as many at the most, since (1 - HELD)^2 are left to train on.
    """
    rng = np.random.default_rng(seed)
    n = pool.kinds.max() + 1
    unseen = np.isin(np.arange(n), rng.permutation(n)[: max(1, round(HELD * n))])
    is_held = unseen[pool.kinds] | (rng.random(len(pool.kinds)) < HELD)
    held = pool.right[is_held[pool.right[:, 0]]]
    kinds = pool.kinds[held[:, 0]]
    places = {UNSEEN: unseen[kinds]} | {name: (among & ~unseen)[kinds] for name, among in sets.items()}
    chosen = {name: held[rng.permutation(np.flatnonzero(at))[:MOST_HELD]] for name, at in places.items()}
    found: dict[str, dict[str, float]] = {}
    for name, arm in arms.items():
        pairs = arm[~is_held[arm[:, 0]]]
        heads = train_heads(pool.features, pairs, samples_seen(len(pool.raw)), seed, min(BATCH, least // 2))
        found[name] = {
            which: recall((pool.features[0][rows[:, 0]], pool.features[1][rows[:, 1]]), heads, rows[:, 1])
            if len(rows) >= FEWEST
            else float("nan")
            for which, rows in chosen.items()
        }
    return found


def random_arm(raw: np.ndarray, size: int, seed: int) -> np.ndarray:
    """Draw ``size`` of the pairs ``raw`` without replacement: the control of a cut of that size."""
    return raw[np.random.default_rng([seed, 1]).permutation(len(raw))[:size]]


def plackett_burman(factors: int) -> np.ndarray:
    """Return which factors are on in each run, bool (runs, factors): each in half of the runs, each pair in a quarter.

    The runs are the fewest p + 1 > ``factors`` with p a prime of 4k + 3, by the squares modulo p (Plackett and Burman
    1946; Paley 1933), and the same with on and off exchanged (Box and Wilson 1951): so no effect holds the interaction
    of two factors, as of two rules that drop the same pairs. 8 runs for up to 3 factors, 16 for 7, 24 for 11.
    """
    primes = (n for n in range(3, 4 * factors + 12, 4) if all(n % d for d in range(2, int(n**0.5) + 1)))
    p = next(n for n in primes if n >= factors)
    squares = {n * n % p for n in range(1, p)}
    row = np.array([n not in squares for n in range(p)])
    on = np.stack([np.roll(row, shift) for shift in range(p)])
    on = on if on[:, 0].sum() == (p + 1) // 2 else ~on
    design = np.vstack([on, np.zeros((1, p), bool)])[:, :factors]
    return np.vstack([design, ~design])


def main_effects(values: np.ndarray, design: np.ndarray) -> np.ndarray:
    """Return each factor's effect by replicate, (replicates, factors): the mean with it on less the mean with it off.

    ``values``: (replicates, runs); ``design``: bool (runs, factors), balanced and orthogonal, so that this is the least
    squares estimate of a model without interactions.
    """
    return np.asarray(values) @ np.where(design, 2.0, -2.0) / len(design)
