"""Estimate how often contents repeat in a whole from how often they repeat in a sample of its units.

Repeats do not grow with the sample: of two copies in different units, a sample of a tenth of the units has both with a
chance of a hundredth. Each content is a class with an unknown number of units, and the sample has a binomial number of
them. The classes' sizes are a mixture that is fitted by maximum likelihood to the seen classes (zero-truncated, as
Böhning and Schön, J. R. Stat. Soc. C 54, 2005, for the number of species). For pairs alone the result is the unbiased
pair estimate of Goodman (Ann. Math. Stat. 20, 1949): pairs seen / share**2.
"""

from __future__ import annotations

import numpy as np

from pairmill.ops.whole.cluster_sample import poisson_limits

SIZES = 40  # of the mixture: 1, 2, 3 … then in steps of a fifth
ROUNDS = 500


def repeats(seen: np.ndarray, share: float) -> float:
    """Return the estimate of the repeats between units in the whole: for each content, its units minus one.

    Args:
        seen: For each content of the sample, in how many of the sample's units it is; int (n,), 1 or more.
        share: The share of the units that the sample has, above 0 and at most 1.
    """
    extra = float((seen - 1).sum())
    if share >= 1 or not extra:
        return extra
    times, counts = np.unique(seen, return_counts=True)
    sizes = _sizes(int(np.ceil(2 * times[-1] / share)) + 2)
    is_seen = 1 - (1 - share) ** sizes
    weights = _fitted(_binomial(times, sizes, share) / is_seen, counts)
    classes = counts.sum() * weights / is_seen
    return max(extra, float((classes * (sizes - 1)).sum()))


def repeats_range(seen: np.ndarray, share: float) -> tuple[float, float]:
    """Return the 90 % limits of `repeats`, from the limits of the number of repeats in the sample.

    Without any repeat in the sample, the upper limit is that of pairs: 3.0 / share**2. The lower one is at least what
    the sample has.
    """
    extra = float((seen - 1).sum())
    if share >= 1:
        return extra, extra
    low, high = poisson_limits(extra)
    if not extra:
        return 0.0, high / share**2
    found = repeats(seen, share)
    return max(extra, found * low / extra), found * high / extra


def still_none(seen: np.ndarray, share: float) -> float:
    """Return the chance that an item with none in the sample has none in the whole either, 0 to 1.

    A picture without a similar sentence in the sample may have one in the whole. The items with none are taken to
    become fewer from the sample to the whole by the factor by which they do from a part of the sample to all of it,
    where the part has the same share of its units. A mixture of sizes, as in `repeats`, does not tell those that have
    none from those that have few.

    Args:
        seen: For each item, how many units of the sample have one, int (n,), 0 or more.
        share: The share of the units that the sample has.
    """
    none = (seen == 0).sum()
    return float(none / ((1 - share) ** seen).sum()) if none and share < 1 else 1.0


def _fitted(chance: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the most likely weights of a mixture, float64 (sizes,), by expectation maximisation.

    Args:
        chance: Chance of each seen number for each size, (numbers, sizes).
        counts: How many items have each number, (numbers,).
    """
    weights = np.full(chance.shape[1], 1 / chance.shape[1])
    for _ in range(ROUNDS):
        mixed = chance * weights
        weights = (counts[:, None] * mixed / mixed.sum(axis=1, keepdims=True)).sum(axis=0) / counts.sum()
    return weights


def _sizes(most: int) -> np.ndarray:
    """Return the sizes of classes that the mixture may have, int64, from 1 to ``most``."""
    dense = np.arange(1, 9)
    wide = np.geomspace(9, max(10, most), SIZES - len(dense))
    return np.unique(np.concatenate([dense, wide.astype(np.int64)]))


def _binomial(times: np.ndarray, sizes: np.ndarray, share: float) -> np.ndarray:
    """Return the chance of each number of ``times`` for each size, float64 (times, sizes)."""
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, sizes[-1] + 1)))])  # log of n!
    k, n = times[:, None], sizes[None, :]
    left = np.maximum(n - k, 0)
    found = logs[n] - logs[np.minimum(k, n)] - logs[left] + k * np.log(share) + left * np.log1p(-share)
    return np.where(k <= n, np.exp(found), 0.0)
