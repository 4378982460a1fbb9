"""Bound the share of wrong items from a simple random sample: the exact bound of Clopper and Pearson (1934)."""

from math import exp, lgamma, log, log1p

MOST_LABELS = 100_000
_STEPS = 60  # of the bisection: 2**-60 is below the resolution of a double near 1


def upper_bound(wrong: int, labels: int, confidence: float) -> float:
    """Return the largest share p for which at most ``wrong`` of ``labels`` has a chance of 1 - ``confidence``.

    The true share is at or below it with a chance of ``confidence`` or more. 1 without labels.
    """
    if wrong >= labels:
        return 1.0
    low, high = wrong / labels, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if _at_most(wrong, labels, middle) > 1 - confidence else (low, middle)
    return high


def labels_needed(wrong: int, share: float, confidence: float) -> int:
    """Return the fewest labels, ``wrong`` of them wrong, whose `upper_bound` is at most ``share``.

    For 5 % at 90 %: 45 without a wrong one, 77 with one, 105 with two. MOST_LABELS if even that many are too few.
    """
    low, high = wrong + 1, MOST_LABELS
    while low < high:
        middle = (low + high) // 2
        if upper_bound(wrong, middle, confidence) <= share:
            high = middle
        else:
            low = middle + 1
    return low


def _at_most(wrong: int, labels: int, share: float) -> float:
    """Return the chance of at most ``wrong`` among ``labels`` draws, each wrong with the chance ``share``."""
    if share >= 1:
        return 0.0
    total = 0.0
    for k in range(wrong + 1):
        ways = lgamma(labels + 1) - lgamma(k + 1) - lgamma(labels - k + 1)
        total += exp(ways + (k * log(share) if k else 0.0) + (labels - k) * log1p(-share))
    return min(total, 1.0)
