"""Estimate totals with intervals from a sample of whole units, by a bootstrap over the units.

Pictures of one unit resemble each other: units vary independently, and pictures do not. Estimates are therefore made
again from resamples of the units, drawn with replacement (Efron, Ann. Stat. 7, 1979), and the interval has 90 % of
them. With fewer than some ten units it is too narrow: what few units have does not show how much units vary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

RESAMPLES = 1000
ENDS = (0.05, 0.95)


@dataclass(frozen=True)
class Range:
    """A forecast: its most likely value, and the ends of its 90 % interval."""

    low: float
    value: float
    high: float

    def __add__(self, other: "Range") -> "Range":
        """Return the sum of ranges whose errors may go together, so that their widths add up."""
        return Range(self.low + other.low, self.value + other.value, self.high + other.high)

    def times(self, factor: float) -> "Range":
        """Return the range multiplied by ``factor`` >= 0."""
        return Range(self.low * factor, self.value * factor, self.high * factor)


def resampled_totals(counts: np.ndarray, n_units: int, share: float, seed: int = 0) -> np.ndarray:
    """Return the totals of a sample in row 0, and of RESAMPLES bootstrap resamples below: float64 (1 + RESAMPLES, k).

    The sampled part of the source is known, so deviations from the sample's totals shrink by sqrt(1 - share).

    ``counts``: quantities of each unit, float64 (m, k). ``n_units``: units in the sample: the m, and those with all
    quantities 0. ``share``: the share of all units that is in the sample, above 0 and at most 1.
    """
    chances = np.full(len(counts) + 1, 1 / n_units)
    chances[-1] = max(0.0, 1 - len(counts) / n_units)
    weights = np.random.default_rng(seed).multinomial(n_units, chances, RESAMPLES)[:, :-1]
    totals = counts.sum(axis=0)
    return np.vstack([totals, totals + sqrt(1 - share) * (weights @ counts - totals)])


def interval(estimates: np.ndarray) -> Range:
    """Return a sample's estimate, ``estimates[0]``, with its 90 % interval from the other ones, of its resamples."""
    value, (low, high) = float(estimates[0]), np.quantile(estimates[1:], ENDS).tolist()
    return Range(min(low, value), value, max(high, value))


def ratio_range(parts: Sequence[tuple[float, float]]) -> Range:
    """Return sum(y) / sum(x) with its 90 % interval, from (y, x > 0) of independent items, such as seconds and rows.

    With a single item the range is from half to twice its ratio.
    """
    if len(parts) == 1:
        ratio = parts[0][0] / parts[0][1]
        return Range(ratio / 2, ratio, 2 * ratio)
    y, x = resampled_totals(np.array(parts, np.float64), len(parts), 0.0).T
    return interval(y / x)
