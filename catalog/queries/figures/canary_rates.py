"""Read how many wrong texts the rules on pairs of a version accept, with exact intervals (`catalog.cut.canaries`)."""

from dataclasses import dataclass

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.figures.binomial_bound import upper_bound
from pairmill.catalog.terms.canary import KIND

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
    return [canary_rate(*row) for row in lake.query(sql, (dataset.name, dataset.version, KIND))]
