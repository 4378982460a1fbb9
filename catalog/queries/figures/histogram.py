"""Compute histograms of a dataset version's scores in SQL, with one pass over the columns of each table."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.eligible import current_scores
from pairmill.catalog.recipe.plan import Check, Plan, ScoreColumns
from pairmill.catalog.recipe.thresholds import NUMBERS, Quantity, quantities
from pairmill.catalog.terms.score import Stage

BINS = 40
# share of values at either end that go to the last bin if they would stretch the axis by over 30 % (STRETCH)
TAIL = 0.005
STRETCH = 0.3
# Largest deviation of a model's value when repeated on another device, in reduced precision or with other batch sizes;
# relative for thresholds above 1 (a perplexity).
REPEAT = 1e-3


@dataclass(frozen=True)
class Histogram:
    """Histogram of one quantity: ``counts[i]`` values are in [start + i * width, start + (i + 1) * width).

    If ``has_less`` or ``has_more``, the outer bins also count the values beyond. ``n``: number of values.
    ``n_missing``: scored items without a value. ``whole``: the values are integers. All values are between ``lowest``
    and ``highest``. ``n_near``: values of a model within REPEAT of a threshold, which a repeat may decide the other
    way.
    """

    quantity: Quantity
    kind: str
    start: float
    width: float
    counts: tuple[int, ...]
    n: int
    n_missing: int
    whole: bool
    has_less: bool
    has_more: bool
    lowest: float
    highest: float
    n_near: int = 0


def histograms(lake: Lake, plan: Plan, upto: int) -> list[Histogram]:
    """Return a histogram for each quantity that a rule compares, then for each numeric score that no rule reads.

    Covers distinct images and sentences, in rows of commits <= ``upto``. Quantities without any value are left out.
    """
    found = []
    for kind, checks, tables in (
        ("image", plan.image_checks, plan.image_tables),
        ("sentence", plan.sentence_checks, plan.sentence_tables),
    ):
        wanted = _wanted([check for check in checks if check.name != "readable"], tables)
        by_source: dict[str, list[int]] = {}
        for place, quantity in enumerate(wanted):
            by_source.setdefault(_source(plan, quantity, kind, tables, upto), []).append(place)
        drawn: dict[int, Histogram] = {}
        for source, places in by_source.items():
            drawn |= _histograms(lake, source, {place: wanted[place] for place in places}, kind, tables)
        found += [drawn[place] for place in sorted(drawn)]
    return found


def histograms_of(lake: Lake, sql: str, columns: Sequence[str], kind: str) -> list[Histogram]:
    """Return the histogram of each of the numeric ``columns`` of a query that has a value."""
    wanted = {n: Quantity(f'"{column}"', (column,)) for n, column in enumerate(columns)}
    drawn = _histograms(lake, sql, wanted, kind, ())
    return [replace(drawn[n], quantity=Quantity(columns[n], (columns[n],))) for n in sorted(drawn)]


def quantiles(
    lake: Lake, plan: Plan, quantity: Quantity, kind: str, shares: Sequence[float], upto: int
) -> tuple[float, ...]:
    """Return the values of ``quantity`` at ``shares`` (0 to 1) of all values, accurate to about 1 % of the rank.

    Empty if there are no values.
    """
    tables = plan.image_tables if kind == "image" else plan.sentence_tables
    rows = f"SELECT try_cast({quantity.sql} AS DOUBLE) AS q FROM ({_source(plan, quantity, kind, tables, upto)})"
    sql = f"SELECT approx_quantile(q, {list(shares)}) FROM ({rows}) WHERE isfinite(q)"
    return tuple(lake.query(sql)[0][0] or ())


def _wanted(checks: Sequence[Check], tables: Sequence[ScoreColumns]) -> list[Quantity]:
    """Return the quantities to draw: those of the rules, then the scores that no rule reads."""
    types = {column: sql_type for table in tables for column, sql_type in table.columns.items()}
    ruled = [quantity for check in checks for quantity in quantities(check, types)]
    drawn = {quantity.sql for quantity in ruled}
    scores = [c for table in tables for c in table.columns if types[c] in NUMBERS and table is not tables[0]]
    return ruled + [Quantity(column, (column,)) for column in scores if column not in drawn]


def _source(plan: Plan, quantity: Quantity, kind: str, tables: Sequence[ScoreColumns], upto: int) -> str:
    """Return SQL for distinct images or sentences with the columns that ``quantity`` reads.

    If a single score table has all the columns, it is read without a join.
    """
    base, *scored = tables
    key = "sha256" if kind == "image" else "content"
    used = [table for table in scored if not set(quantity.columns).isdisjoint(table.columns)]
    if len(used) == 1 and set(quantity.columns) <= used[0].columns.keys():
        columns = ", ".join(f"{source} AS {name}" for name, source in used[0].source.items())
        return f"SELECT {columns} FROM {current_scores(plan, used[0].table, key, upto)}"
    joins = "".join(f" LEFT JOIN {current_scores(plan, t.table, key, upto)} {t.table} USING ({key})" for t in used)
    columns = [f"{t.table}.{t.source[c]} AS {c}" for t in used for c in quantity.columns if c in t.columns]
    columns += [f"base.{c}" for c in quantity.columns if c in base.columns]
    return f"SELECT {', '.join(columns)} FROM ({_base(kind, quantity, upto)}) base{joins}"


def _base(kind: str, quantity: Quantity, upto: int) -> str:
    """Return SQL for the items of a histogram: distinct images or sentences, or occurrences of images.

    Occurrences count only if ``quantity`` reads a column that differs between them, such as the position.
    """
    if kind == "sentence":
        repeats = f"SELECT content, count(*) AS repeats FROM sentences WHERE commit <= {upto} GROUP BY content"
        known = f"SELECT * FROM sentence_content WHERE commit <= {upto}"
        return f"FROM ({known}) JOIN ({repeats}) USING (content)" if "repeats" in quantity.columns else known
    # Address, alt text and position belong to an occurrence, all other columns to the image.
    of_occurrence = {"url", "alt_text", "position"} & set(quantity.columns)
    return f"SELECT * FROM {'images' if of_occurrence else 'image_content'} WHERE commit <= {upto}"


def _histograms(
    lake: Lake, source: str, wanted: Mapping[int, Quantity], kind: str, tables: Sequence[ScoreColumns]
) -> dict[int, Histogram]:
    """Compute the histograms of all quantities of the SQL ``source``, which is read once, into a temporary table.

    Quantities without a finite value are left out. ``n_near`` counts a model's values that a repeat may move across a
    threshold; it is 0 for other scores.
    """
    columns = ", ".join(f"({quantity.sql}) AS raw_{n}" for n, quantity in wanted.items())
    typed = ", ".join(f"try_cast(raw_{n} AS DOUBLE) AS q_{n}, typeof(raw_{n}) AS t_{n}" for n in wanted)
    lake.execute(f"CREATE OR REPLACE TEMP TABLE drawn_values AS SELECT {typed} FROM (SELECT {columns} FROM ({source}))")
    drawn = _ranges(lake, wanted, kind)
    if not drawn:
        return {}
    sql = ", ".join(
        f"histogram(CASE WHEN isfinite(q_{n}) THEN {_bin(f'q_{n}', each)} END), "
        f"count(*) FILTER (isfinite(q_{n}) AND ({_is_near(f'q_{n}', _near_edges(each.quantity, tables))}))"
        for n, each in drawn.items()
    )
    found = iter(lake.query(f"SELECT {sql} FROM drawn_values")[0])
    for n, each in drawn.items():
        by_bin, n_near = next(found), next(found)
        counts = tuple(by_bin.get(bin, 0) for bin in range(len(each.counts)))
        drawn[n] = replace(each, counts=counts, n_near=n_near)
    return drawn


def _ranges(lake: Lake, wanted: Mapping[int, Quantity], kind: str) -> dict[int, Histogram]:
    """Compute the axes of histograms, with empty bins; quantities without a finite value are left out."""
    asked = ", ".join(
        f"count(q_{n}) FILTER (isfinite(q_{n})), min(q_{n}) FILTER (isfinite(q_{n})), "
        f"max(q_{n}) FILTER (isfinite(q_{n})), "
        f"approx_quantile(q_{n}, [{TAIL}, {1 - TAIL}]) FILTER (isfinite(q_{n})), any_value(t_{n})"
        for n in wanted
    )
    n_all, *rest = lake.query(f"SELECT count(*), {asked} FROM drawn_values")[0]
    found = {}
    for (place, quantity), at in zip(wanted.items(), range(0, len(rest), 5), strict=True):
        n, low, high, tails, sql_type = rest[at : at + 5]
        if not n:
            continue
        whole = "INT" in sql_type
        start, width, n_bins = bins(quantity, (low, high), _axis(low, high, tails, whole), whole)
        end = start + n_bins * width
        beyond = high >= end if whole else high > end + 1e-9 * width
        empty = (0,) * n_bins
        found[place] = Histogram(
            quantity, kind, start, width, empty, n, n_all - n, whole, low < start, beyond, low, high
        )
    return found


def _bin(value: str, drawn: Histogram) -> str:
    """Return SQL for the number of the bin that holds ``value``."""
    last = len(drawn.counts) - 1
    return f"CAST(greatest(0, least({last}, floor(({value} - {drawn.start!r}) / {drawn.width!r}))) AS INTEGER)"


def _is_near(value: str, edges: Sequence[float]) -> str:
    """Return SQL that tests whether a repeat may move ``value`` across one of the thresholds ``edges``."""
    return " OR ".join(f"abs({value} - {edge!r}) <= {REPEAT * max(1.0, abs(edge))!r}" for edge in edges) or "false"


def _near_edges(quantity: Quantity, tables: Sequence[ScoreColumns]) -> list[float]:
    """Return the thresholds of a quantity that a model measures: the values of a repeat differ a little."""
    read = [table for table in tables if not set(quantity.columns).isdisjoint(table.columns)]
    edges = [edge for edge in (quantity.low, quantity.high) if edge is not None]
    return edges if max((table.stage for table in read), default=Stage.INGEST) >= Stage.LANGUAGE else []


def _axis(low: float, high: float, tails: Sequence[float], whole: bool) -> tuple[float, float]:
    """Return (low, high) of the axis: all values, without a TAIL that would stretch it by more than STRETCH."""
    if whole and high - low < BINS:
        return low, high
    inner_low, inner_high = max(low, tails[0]), min(high, tails[1])
    most = STRETCH * max(inner_high - inner_low, 1e-9)
    return (inner_low if inner_low - low > most else low), (inner_high if high - inner_high > most else high)


def bins(
    quantity: Quantity, whole_range: tuple[float, float], shown: tuple[float, float], whole: bool
) -> tuple[float, float, int]:
    """Return (start, width, number) of the bins over the range ``shown`` and each threshold among or near the values.

    A threshold is on the edge of a bin, so that no bin is partly kept.
    """
    low, high = shown
    span = high - low
    least, most = min(whole_range[0], low - span), max(whole_range[1], high + span)
    near = [edge for edge in passing(quantity, whole) if edge is not None and least <= edge <= most]
    low, high = min([low, *near]), max([high, *near])
    width = (high - low) / BINS or max(abs(low) / 10, 1e-3)
    if whole:
        low, width = math.floor(low), max(1, math.ceil((high - low + 1) / BINS))
    if near:
        low = near[0] - width * math.ceil((near[0] - low) / width)
    if near and near[-1] >= high and whole_range[1] >= near[-1]:
        high = near[-1] + width  # values beyond the upper threshold get a bin of their own
    n_bins = math.floor((high - low) / width) + 1 if whole else math.ceil((high - low) / width - 1e-9)
    return float(low), float(width), max(1, n_bins)


def passing(quantity: Quantity, whole: bool) -> tuple[float | None, float | None]:
    """Return the (low, high) between which values pass, as bin edges: for integers, `<= 81` ends at 82."""
    low, high = quantity.low, quantity.high
    if whole:
        low = None if low is None else math.ceil(low) + (quantity.strict_low and low == math.ceil(low))
        high = None if high is None else math.floor(high) + (not (quantity.strict_high and high == math.floor(high)))
    return low, high
