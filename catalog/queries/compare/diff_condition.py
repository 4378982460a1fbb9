"""Decide whether a difference of two versions breaks a condition such as ``lost > 5%``, for continuous integration."""

import operator
import re
from dataclasses import dataclass

from pairmill.catalog.queries.compare.version_diff import VersionDiff
from pairmill.catalog.terms.error import PairmillError

_FORM = re.compile(r"(gained|lost|changed)\s*(>=|<=|>|<)\s*(\d+(?:\.\d+)?)\s*(%?)")
_COMPARE = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


@dataclass(frozen=True)
class DiffCondition:
    """A comparison of ``kind`` ('gained', 'lost', 'changed') with a number of pairs.

    ``is_share``: ``number`` is in percent of the earlier version's pairs.
    """

    text: str
    kind: str
    compare: str
    number: float
    is_share: bool

    def holds(self, diff: VersionDiff) -> bool:
        """Return whether the condition holds. If the earlier version is empty, one pair exceeds every share."""
        n = getattr(diff, self.kind)
        if not self.is_share:
            return _COMPARE[self.compare](n, self.number)
        share = 100 * n / diff.pairs_before if diff.pairs_before else (float("inf") if n else 0.0)
        return _COMPARE[self.compare](share, self.number)


def diff_condition(text: str) -> DiffCondition:
    """Parse a condition. Raise PairmillError for another form."""
    found = _FORM.fullmatch(text.strip())
    if not found:
        raise PairmillError(
            f"--fail-if '{text[:80]}' is no condition; write gained, lost or changed, a comparison, and pairs or a "
            'share of the earlier version\'s: "lost > 5%".'
        )
    kind, compare, number, percent = found.groups()
    return DiffCondition(text.strip(), kind, compare, float(number), bool(percent))
