"""Find rules whose threshold does not suit the data: rules that drop nothing, almost everything, or everything.

A threshold belongs to one model and one corpus.
"""

from dataclasses import dataclass

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.figures.histogram import quantiles
from pairmill.catalog.recipe.plan import Check, Plan, quantities

# With fewer than LEAST items, a share means nothing unless all are dropped. Dropping nine of ten is rarely intended.
# Dropping none of fewer than LEAST_KEPT items is no surprise: a first folder would have a note for half of its rules.
LEAST, LEAST_KEPT, MOST = 100, 1000, 0.9
SHOWN = (0.01, 0.1, 0.5, 0.9, 0.99)


@dataclass(frozen=True)
class IdleRule:
    """A suspicious rule: how many of ``n_in`` items of ``kind`` it dropped, and the quantiles of the compared values.

    ``values``: the displayed quantity -> its values at the shares SHOWN; empty for a rule without a threshold.
    """

    kind: str
    rule: str
    n_in: int
    n_dropped: int
    values: dict[str, tuple[float, ...]]

    def __str__(self) -> str:
        what = "all" if self.n_dropped == self.n_in else f"{self.n_dropped:,} of" if self.n_dropped else "none of"
        shown = "; ".join(
            f"{label} is {', '.join(f'{value:.4g} at {share:.0%}' for share, value in zip(SHOWN, values, strict=True))}"
            for label, values in self.values.items()
        )
        met = f": {shown}" if shown else ""
        return (
            f"the rule '{self.rule}' drops {what} {self.n_in:,} {self.kind}s{met}. A rule belongs to one model and one "
            f"corpus: change {self.kind}s.{self.rule}.keep, or take the rule out."
        )


def idle_rules(lake: Lake, plan: Plan, name: str, version: int, upto: int) -> list[IdleRule]:
    """Return the rules of a version that drop all items, nothing, or more than MOST, over rows of commits <= ``upto``.

    Rules that drop all are returned however few items there are. The other rules are returned only if they have a
    threshold and at least LEAST items, or LEAST_KEPT where they drop nothing: that is no fault of a rule without a
    number (`not has_url`).
    """
    sql = (
        "SELECT kind, rule, n_in, n_dropped FROM funnel WHERE dataset = ? AND version = ? "
        "AND kind IN ('image', 'sentence') ORDER BY position"
    )
    found = []
    for kind, rule, n_in, n_dropped in lake.query(sql, (name, version)):
        check = _check(plan, kind, rule)
        takes_all = n_in == n_dropped > 0
        least = LEAST if n_dropped else LEAST_KEPT
        if check is None or (not takes_all and (n_in < least or 0 < n_dropped <= MOST * n_in)):
            continue
        values = _values(lake, plan, kind, check, upto)
        if values or takes_all:
            found.append(IdleRule(kind, rule, n_in, n_dropped, values))
    return found


def _check(plan: Plan, kind: str, rule: str) -> Check | None:
    """Return the compiled rule of that name, or None."""
    checks = plan.image_checks if kind == "image" else plan.sentence_checks
    return next((check for check in checks if check.name == rule and rule != "readable"), None)


def _values(lake: Lake, plan: Plan, kind: str, check: Check, upto: int) -> dict[str, tuple[float, ...]]:
    """Return, for each quantity with a threshold that the rule compares, its displayed form -> quantiles at SHOWN."""
    tables = plan.image_tables if kind == "image" else plan.sentence_tables
    types = {column: sql_type for table in tables for column, sql_type in table.columns.items()}
    compared = [each for each in quantities(check, types) if each.low is not None or each.high is not None]
    measured = {each.label: quantiles(lake, plan, each, kind, SHOWN, upto) for each in compared}
    return {label: values for label, values in measured.items() if values}
