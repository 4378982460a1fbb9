"""Estimate totals with intervals from a sample of whole units, whose pictures resemble each other.

The units are drawn at random without replacement, so the units vary independently and their pictures do not. Variances
therefore come from the units: the delete-a-group jackknife (Kott, 2001), with the finite-population correction.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, inf, lgamma, log, sqrt
from statistics import NormalDist

import numpy as np

GROUPS = 20
CONFIDENCE = 0.9
_STEPS = 60  # of a bisection


@dataclass(frozen=True)
class Range:
    """A forecast: its most likely value, and the ends of its 90 % interval."""

    low: float
    value: float
    high: float

    def within(self, least: float, most: float) -> "Range":
        """Return the range with all three numbers clipped to ``least`` … ``most``."""
        return Range(*(float(min(max(each, least), most)) for each in (self.low, self.value, self.high)))

    def widened(self, low: float, high: float) -> "Range":
        """Return the smallest range that holds this one, ``low`` and ``high``."""
        return Range(float(min(self.low, low)), self.value, float(max(self.high, high)))

    def times(self, factor: float) -> "Range":
        """Return the range multiplied by ``factor`` >= 0."""
        return Range(self.low * factor, self.value * factor, self.high * factor)


def jackknife(estimate: Callable[[np.ndarray], np.ndarray], n_units: int, share: float) -> list[Range]:
    """Return an interval for each number that ``estimate`` computes.

    Args:
        estimate: Takes the weight of each unit, float64 (n_units,), relative to its weight in the sample, 0 if it is
            left out; returns the estimates, float64 (k,).
        n_units: Units of the sample, in random order.
        share: Share of all units that the sample has; at 1 nothing is left to vary.

    Returns:
        k ranges. With a single unit out of several, the interval has no upper end.
    """
    whole = estimate(np.ones(n_units))
    if share >= 1:
        return [Range(each, each, each) for each in whole.tolist()]
    groups = min(GROUPS, n_units)
    if groups < 2:
        return [Range(0.0, each, inf) for each in whole.tolist()]
    member = np.arange(n_units) % groups
    without = np.array([estimate(_without(member, group)) for group in range(groups)])
    variance = (groups - 1) / groups * ((without - without.mean(axis=0)) ** 2).sum(axis=0)
    half = student(groups - 1) * np.sqrt((1 - share) * variance)
    return [Range(v - h, v, v + h) for v, h in zip(whole.tolist(), half.tolist(), strict=True)]


def _without(member: np.ndarray, group: int) -> np.ndarray:
    """Return the units' weights without one group: the others stand for it."""
    kept = member != group
    return kept * (len(member) / kept.sum())


def student(degrees: int) -> float:
    """Return the quantile of Student's t for CONFIDENCE, two-sided (Abramowitz and Stegun 26.7.5, two terms)."""
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


def counted(n: float, share: float) -> tuple[float, float]:
    """Return the limits of a total of rare, independent items, ``n`` of which a sample of ``share`` has.

    The exact limits of Garwood (1936) for a Poisson count. They hold where a jackknife fails: for 0 of 50 units it
    gives an interval of no width.
    """
    low, high = poisson_limits(n)
    unseen = (1 - share) / share
    return n + unseen * low, n + unseen * high


def poisson_limits(n: float) -> tuple[float, float]:
    """Return the means for which ``n`` or more, and ``n`` or fewer, have a chance of (1 - CONFIDENCE) / 2 each."""
    tail, count = (1 - CONFIDENCE) / 2, round(n)
    most = count + 10 + 5 * sqrt(count + 1)
    low = 0.0 if not count else _bisected(lambda mean: 1 - _at_most(count - 1, mean) < tail, most)
    return low, _bisected(lambda mean: _at_most(count, mean) > tail, most)


def _bisected(is_below: Callable[[float], bool], most: float) -> float:
    """Return where ``is_below`` turns false between 0 and ``most``."""
    low, high = 0.0, most
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return high


def _at_most(count: int, mean: float) -> float:
    """Return the chance that a Poisson count is at most ``count``."""
    if mean <= 0:
        return 1.0
    return min(1.0, sum(exp(k * log(mean) - mean - lgamma(k + 1)) for k in range(count + 1)))


def ratio_range(parts: Sequence[tuple[float, float]]) -> Range:
    """Return the range of sum(y) / sum(x) over the (y, x) of independent items, such as seconds and rows.

    With a single item the range is from half to twice its ratio. Raises ZeroDivisionError if all x are 0.
    """
    y, x = (np.array([part[place] for part in parts], float) for place in (0, 1))
    if len(parts) == 1:
        ratio = float(y[0] / x[0])
        return Range(ratio / 2, ratio, 2 * ratio)
    (found,) = jackknife(lambda weights: np.array([weights @ y / (weights @ x)]), len(parts), 0.0)
    return found.within(0.0, inf)
