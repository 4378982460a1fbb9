"""Return the share of wrong texts that a version's rules on pairs accept, with exact intervals (Clopper-Pearson)."""

from bisect import bisect_left
from dataclasses import dataclass

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.schema import CANARY
from pairmill.catalog.queries.datasets import Dataset

CONFIDENCE = 0.95
# A rule that accepts more is noted. Of fewer than LEAST canaries, a share says little: 8 of 30 are 12 to 46 %.
MOST, LEAST = 0.2, 30


@dataclass(frozen=True)
class CanaryRate:
    """Count of deliberately wrong texts (canaries) that a rule on pairs accepted, of all that it was tried on.

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
        """Whether the rule accepts a share above MOST, on at least LEAST canaries."""
        return self.canaries >= LEAST and self.share > MOST

    def __str__(self) -> str:
        return (
            f"{self.rule} accepts {self.share:.0%} of {self.canaries} wrong texts "
            f"({CONFIDENCE:.0%} interval {self.low:.0%} to {self.high:.0%})"
        )


def canary_rate(rule: str, canaries: int, accepted: int) -> CanaryRate:
    """Return the rate of ``accepted`` of ``canaries`` with its exact interval at CONFIDENCE.

    The true share is beyond either end with a chance of at most (1 - CONFIDENCE) / 2.
    """
    each_end = (1 + CONFIDENCE) / 2
    low = 1 - upper_bound(canaries - accepted, canaries, each_end)
    return CanaryRate(rule, canaries, accepted, low, upper_bound(accepted, canaries, each_end))


def canary_rates(lake: Lake, dataset: Dataset) -> list[CanaryRate]:
    """Return the share of canaries that each rule on pairs of a version accepts; [] for a version without canaries."""
    of_version = "dataset = ? AND version = ? AND kind = ?"
    sql = f"SELECT rule, n_in, n_in - n_dropped FROM funnel WHERE {of_version} ORDER BY position"
    return [canary_rate(*row) for row in lake.query(sql, (dataset.name, dataset.version, CANARY))]


UNKNOWN = 0.9  # share of wrong texts before rules: above, what the pictures' own pages say is hardly nearer to them
UNKNOWING = "to this CLIP the pictures' own texts are hardly nearer than wrong ones"


def wrong_pairs_line(lake: Lake, dataset: Dataset) -> str:
    """Return the line on a version's share of wrong real texts; '' for a version without real texts or estimate."""
    if "wrong_pairs" not in lake.tables:  # a reader's lake of an older Pairmill
        return ""
    sql = "SELECT canaries, wrong_before, share, low, high FROM wrong_pairs WHERE dataset = ? AND version = ?"
    for canaries, before, share, low, high in lake.query(sql, (dataset.name, dataset.version)):
        if share is None:
            needs = f"50 deliberately wrong texts (there are {canaries}), 50 pairs and no rule on candidates"
            return f"wrong pairs: cannot be told; it takes {needs}"
        digits = 1 if share < 0.02 else 0
        apart = f"; {UNKNOWING}" if before >= UNKNOWN else ""
        interval = f"{100 * low:.{digits}f}–{100 * high:.{digits}f} %"
        return f"wrong pairs: at most {100 * share:.{digits}f} % ({interval}){apart}"
    return ""


MOST_LABELS = 100_000


def upper_bound(wrong: int, labels: int, confidence: float) -> float:
    """Return the upper confidence bound (Clopper and Pearson) of the true share of wrong items, 0 to 1.

    ``wrong`` of ``labels`` were found wrong. The bound is the largest share for which so few have a chance of 1 -
    ``confidence``; the true share is at or below it with a chance of ``confidence`` or more. 1 without labels.
    """
    from scipy.special import betaincinv  # 0.12 CPU s

    return 1.0 if wrong >= labels else float(betaincinv(wrong + 1, labels - wrong, confidence))


def labels_needed(wrong: int, share: float, confidence: float) -> int:
    """Return how many labels are needed, if ``wrong`` of them are wrong, for an `upper_bound` of at most ``share``.

    For 5 % at 90 %: 45 without a wrong one, 77 with one, 105 with two. MOST_LABELS if even that many are too few.
    """
    labels = range(wrong + 1, MOST_LABELS)
    return labels.start + bisect_left(labels, True, key=lambda n: upper_bound(wrong, n, confidence) <= share)
