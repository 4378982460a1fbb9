"""Find the images nearest to each threshold, whose fate a small change of the threshold decides."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pairmill.catalog.cut.facts_tables import image_checks
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.pending.eligible import current_scores
from pairmill.catalog.recipe.plan import Check, Plan, quantities
from pairmill.catalog.terms.score import Stage

NEAREST = 3  # images on each side of a threshold
IMAGES_AT_ONCE = 2_000_000


@dataclass(frozen=True)
class MarginalItem:
    """An image beside the threshold ``edge`` of a rule; only this rule and later steps decide on it."""

    rule: str
    label: str  # the quantity that the rule compares, such as ``width / height``
    edge: float
    value: float  # the image's value of the quantity
    image_id: str
    url: str  # its address, '' without one
    dropped_by: str  # the step that drops it; '' if it is kept


@dataclass(frozen=True)
class _Threshold:
    """One threshold of a rule: ``sql`` is the quantity that the rule compares with ``edge``."""

    check: Check
    label: str
    sql: str
    edge: float

    @property
    def is_early(self) -> bool:
        """Whether the facts have every column that the rule reads, so it needs no generated text."""
        return self.check.stage < Stage.CAPTION


# An image beside a threshold, before its address is known: value, image_id, shard, dropped_by.
_Beside = tuple[float, str, str, str]


def marginal_items(
    lake: Lake, plan: Plan, rules: frozenset[str] | None = None, most: int = NEAREST
) -> list[MarginalItem]:
    """Return the ``most`` nearest images on each side of each threshold, by the last cut of this connection.

    Images that another rule drops are left out: no threshold of this rule changes their fate. Images below a threshold
    come before those above it, the nearest of each side first. ``rules`` restricts the rules; None means all.
    """
    types = {name: kind for table in plan.image_tables for name, kind in table.columns.items()}
    thresholds = [
        _Threshold(check, quantity.label, quantity.sql, edge)
        for check in plan.image_checks
        if rules is None or check.name in rules
        for quantity in quantities(check, types)
        for edge in (quantity.low, quantity.high)
        if edge is not None
    ]
    lake.execute("""CREATE OR REPLACE TEMP TABLE marginal_kept AS SELECT n FROM cut_capped WHERE NOT past AND
        coalesce(state, '') = '' AND n NOT IN (SELECT n FROM cut_textless)""")
    with lake.without_tables():
        of_facts = iter(_of_facts(lake, plan, [each for each in thresholds if each.is_early], most))
    beside = [next(of_facts) if each.is_early else _of_texts(lake, plan, each, most) for each in thresholds]
    lake.execute("DROP TABLE marginal_kept")
    urls = _urls(lake, {image_id: shard for rows in beside for _, image_id, shard, _ in rows})
    return [
        MarginalItem(each.check.name, each.label, each.edge, value, image_id, urls.get(image_id, ""), fate)
        for each, rows in zip(thresholds, beside, strict=True)
        for value, image_id, shard, fate in rows
    ]


def _of_facts(lake: Lake, plan: Plan, thresholds: Sequence[_Threshold], most: int) -> list[list[_Beside]]:
    """Return the images nearest each threshold of an early rule, in one pass over the facts, a byte an image."""
    if not thresholds:
        return []
    is_kept = np.zeros(lake.query("SELECT coalesce(max(rowid), -1) + 1 FROM facts.images")[0][0], bool)
    is_kept[lake.table("SELECT n FROM marginal_kept")["n"].to_numpy()] = True
    rules = image_checks(plan)
    first_failed = " ".join(f"WHEN ({check.keep}) IS NOT TRUE THEN {at}" for at, check in enumerate(rules))
    columns = ", ".join(f"CAST({each.sql} AS DOUBLE) AS q{place}" for place, each in enumerate(thresholds))
    nearest: list[tuple[np.ndarray, np.ndarray]] = [(np.zeros(0), np.zeros(0, np.uint32))] * (2 * len(thresholds))
    for start in range(0, len(is_kept), IMAGES_AT_ONCE):
        block = lake.table(f"""SELECT CAST(rowid AS UINTEGER) AS n, CAST(CASE {first_failed}
            ELSE -1 END AS SMALLINT) AS failed, {columns} FROM facts.images WHERE rowid BETWEEN {start}
            AND {start + IMAGES_AT_ONCE - 1}""")
        n, failed = block["n"].to_numpy(), block["failed"].to_numpy()
        for place, each in enumerate(thresholds):
            is_decided = is_kept[n] | (failed == rules.index(each.check))
            value = block[f"q{place}"].to_numpy()
            for side, is_beside in enumerate((value < each.edge, value >= each.edge), 2 * place):
                at = np.flatnonzero(is_decided & is_beside)
                values, numbers = nearest[side]
                nearest[side] = _nearest(np.append(values, value[at]), np.append(numbers, n[at]), most, side % 2 == 0)
    return _with_ids(lake, thresholds, nearest, most)


def _nearest(values: np.ndarray, numbers: np.ndarray, most: int, below: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the ``most`` values nearest a threshold from one side, with their images, and all equal to the last."""
    if len(values) <= most:
        return values, numbers
    place = len(values) - most if below else most - 1
    last = np.partition(values, place)[place]
    is_near = values >= last if below else values <= last
    return values[is_near], numbers[is_near]


def _with_ids(
    lake: Lake, thresholds: Sequence[_Threshold], nearest: Sequence[tuple[np.ndarray, np.ndarray]], most: int
) -> list[list[_Beside]]:
    """Look up the ids of the nearest images, and return ``most`` a side, by value and then by id."""
    sides = np.repeat(np.arange(len(nearest), dtype=np.int32), [len(numbers) for _, numbers in nearest])
    values, numbers = (np.concatenate(parts) for parts in zip(*nearest, strict=True))
    lake.execute("CREATE OR REPLACE TEMP TABLE marginal_near (side INTEGER, value DOUBLE, n UINTEGER)")
    lake.insert("marginal_near", pa.table({"side": sides, "value": values, "n": numbers}))
    rows = lake.query(f"""SELECT side, value, image_id, shard, if(k.n IS NULL, NULL, '') FROM marginal_near m
        JOIN facts.images i ON i.rowid = m.n LEFT JOIN marginal_kept k ON k.n = m.n QUALIFY row_number() OVER
        (PARTITION BY side ORDER BY if(side % 2 = 0, -value, value), image_id) <= {most}
        ORDER BY side, if(side % 2 = 0, -value, value), image_id""")
    lake.execute("DROP TABLE marginal_near")
    beside: list[list[_Beside]] = [[] for _ in thresholds]
    for side, value, image_id, shard, kept in rows:
        rule = thresholds[side // 2].check.name
        beside[side // 2].append((value, image_id, shard, rule if kept is None else kept))
    return beside


def _of_texts(lake: Lake, plan: Plan, threshold: _Threshold, most: int) -> list[_Beside]:
    """Return the images nearest a threshold of a rule on generated texts, whose scores are not in the facts."""
    check, rule = threshold.check, quoted(threshold.check.name)
    fates = f"""SELECT n, {rule} AS fate FROM cut_capped WHERE NOT past AND state = {rule}
        UNION ALL SELECT n, '' FROM marginal_kept"""
    joins = []
    for table in plan.image_tables[1:]:
        if table.table in check.tables and table.stage >= Stage.CAPTION:
            columns = ", ".join(f"{source} AS {name}" for name, source in table.source.items())
            rows = f"SELECT sha256, {columns} FROM {current_scores(plan, table.table, 'sha256')}"
            joins.append(f" LEFT JOIN ({rows}) {table.table} ON {table.table}.sha256 = i.sha256")
    values = f"""SELECT CAST({threshold.sql} AS DOUBLE) AS value, i.image_id, i.shard, fate FROM facts.images i
        JOIN ({fates}) f ON f.n = i.rowid{"".join(joins)}"""
    parts = " UNION ALL ".join(
        f"(FROM v WHERE value {sign} {threshold.edge!r}::DOUBLE ORDER BY value {order}, image_id LIMIT {most})"
        for sign, order in (("<", "DESC"), (">=", "ASC"))
    )
    return lake.query(f"WITH v AS ({values}) {parts}")


def _urls(lake: Lake, shards: Mapping[str, str]) -> dict[str, str]:
    """Return the addresses of images, by id; ``shards`` has each image's shard, by which files are chosen."""
    if not shards:
        return {}
    ids, among = (", ".join(map(quoted, sorted(set(each)))) for each in (shards, shards.values()))
    rows = lake.query(f"SELECT image_id, url FROM images WHERE shard IN ({among}) AND image_id IN ({ids})")
    return {image_id: url or "" for image_id, url in rows}
