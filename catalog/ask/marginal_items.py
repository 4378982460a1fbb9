"""Find the images nearest each threshold: those whose fate a small change of one number decides."""

from dataclasses import dataclass

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.pending.eligible import current_scores
from pairmill.catalog.recipe.plan import Check, Plan
from pairmill.catalog.recipe.thresholds import quantities
from pairmill.catalog.terms.score import Stage

NEAREST = 3  # images on each side of a threshold


@dataclass(frozen=True)
class MarginalItem:
    """An image beside the threshold ``edge`` of a rule; only this rule and later steps decide on it.

    Attributes:
        rule: Name of the rule.
        label: The quantity that the rule compares, such as ``width / height``.
        edge: The threshold.
        value: The image's quantity.
        image_id: Its id.
        url: Its address, '' without one.
        dropped_by: The step that drops it; '' if it is kept.
    """

    rule: str
    label: str
    edge: float
    value: float
    image_id: str
    url: str
    dropped_by: str


def marginal_items(lake: Lake, plan: Plan, rules: frozenset[str] | None = None) -> list[MarginalItem]:
    """Return up to NEAREST images on each side of each threshold of the plan, by the last cut of this connection.

    Images that another rule drops are left out: no threshold of this rule changes their fate. The nearest comes first
    on each side. ``rules`` restricts the rules; None means all.
    """
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE marginal_fates AS SELECT n, dropped_by FROM cut_images WHERE dropped_by IN "
        f"('', {', '.join(quoted(check.name) for check in plan.image_checks)})"
    )
    types = {name: kind for table in plan.image_tables for name, kind in table.columns.items()}
    found: list[MarginalItem] = []
    for check in plan.image_checks:
        if rules is not None and check.name not in rules:
            continue
        for quantity in quantities(check, types):
            for edge in (quantity.low, quantity.high):
                if edge is not None:
                    for row in _beside(lake, plan, check, quantity.sql, edge):
                        found.append(MarginalItem(check.name, quantity.label, edge, *row))
    lake.execute("DROP TABLE marginal_fates")
    return found


def _beside(lake: Lake, plan: Plan, check: Check, quantity: str, edge: float) -> list[tuple]:
    """Return (value, image_id, url, dropped_by) of the images nearest ``edge``, those below it first."""
    values = (
        f"SELECT i.image_id, dropped_by, CAST({quantity} AS DOUBLE) AS value FROM facts.images i "
        f"JOIN marginal_fates f ON f.n = i.rowid AND f.dropped_by IN ('', {quoted(check.name)}){_late(plan, check)}"
    )
    sides = (("<", "DESC"), (">=", "ASC"))
    parts = " UNION ALL ".join(
        f"(FROM v WHERE value {sign} {edge!r}::DOUBLE ORDER BY value {order}, image_id LIMIT {NEAREST})"
        for sign, order in sides
    )
    rows = lake.query(f"WITH v AS ({values}) {parts}")
    ids = ", ".join(quoted(image_id) for image_id, _, _ in rows) or "NULL"
    urls = dict(lake.query(f"SELECT image_id, url FROM images WHERE image_id IN ({ids})"))
    return [(value, image_id, urls.get(image_id) or "", fate) for image_id, fate, value in rows]


def _late(plan: Plan, check: Check) -> str:
    """Return SQL that joins the scores of generated texts that the rule reads; the facts have all earlier ones."""
    if check.stage < Stage.CAPTION:
        return ""
    late = [each for each in plan.image_tables[1:] if each.table in check.tables and each.stage >= Stage.CAPTION]
    joins = []
    for table in late:
        columns = ", ".join(f"{source} AS {name}" for name, source in table.source.items())
        rows = f"SELECT sha256, {columns} FROM {current_scores(plan, table.table, 'sha256')}"
        joins.append(f" LEFT JOIN ({rows}) {table.table} ON {table.table}.sha256 = i.sha256")
    return "".join(joins)
