"""Read how many wrong texts the rules on pairs of a version accept, with exact intervals (Clopper and Pearson 1934)."""

from bisect import bisect_left
from dataclasses import dataclass
from math import exp, lgamma, log, log1p

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.table_meanings import CANARY
from pairmill.catalog.queries.datasets import Dataset

CONFIDENCE = 0.95
# A rule that accepts more is noted. Of fewer than LEAST canaries, a share says little: 8 of 30 are 12 to 46 %.
MOST, LEAST = 0.2, 30


@dataclass(frozen=True)
class CanaryRate:
    """How many of ``canaries`` wrong texts a rule on pairs accepted.

    ``low`` and ``high`` are the ends of the exact interval of the share at CONFIDENCE (Clopper and Pearson).
    """

    rule: str
    canaries: int
    accepted: int
    low: float
    high: float

    @property
    def share(self) -> float:
        """The share of the wrong texts that the rule accepted, 0 to 1."""
        return self.accepted / self.canaries

    @property
    def is_high(self) -> bool:
        """Whether the rule accepts more than MOST, of enough canaries to say so."""
        return self.canaries >= LEAST and self.share > MOST

    def __str__(self) -> str:
        return (
            f"{self.rule} accepts {self.share:.0%} of {self.canaries} wrong texts "
            f"({CONFIDENCE:.0%} interval {self.low:.0%} to {self.high:.0%})"
        )


def canary_rate(rule: str, canaries: int, accepted: int) -> CanaryRate:
    """Return the rate with its interval; each end is exceeded with a chance of at most (1 - CONFIDENCE) / 2."""
    each_end = (1 + CONFIDENCE) / 2
    low = 1 - upper_bound(canaries - accepted, canaries, each_end)
    return CanaryRate(rule, canaries, accepted, low, upper_bound(accepted, canaries, each_end))


def canary_rates(lake: Lake, dataset: Dataset) -> list[CanaryRate]:
    """Return the rate of each rule on pairs; [] for a version without canaries."""
    of_version = "dataset = ? AND version = ? AND kind = ?"
    sql = f"SELECT rule, n_in, n_in - n_dropped FROM funnel WHERE {of_version} ORDER BY position"
    return [canary_rate(*row) for row in lake.query(sql, (dataset.name, dataset.version, CANARY))]


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
    labels = range(wrong + 1, MOST_LABELS)
    return labels.start + bisect_left(labels, True, key=lambda n: upper_bound(wrong, n, confidence) <= share)


def _at_most(wrong: int, labels: int, share: float) -> float:
    """Return the chance of at most ``wrong`` among ``labels`` draws, each wrong with the chance ``share``."""
    if share >= 1:
        return 0.0
    total = 0.0
    for k in range(wrong + 1):
        ways = lgamma(labels + 1) - lgamma(k + 1) - lgamma(labels - k + 1)
        total += exp(ways + (k * log(share) if k else 0.0) + (labels - k) * log1p(-share))
    return min(total, 1.0)
