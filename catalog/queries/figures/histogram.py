"""Compute histograms in SQL: of a dataset version's scores, of columns of a query, of the rows of a gallery."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.eligible import current_scores
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.recipe.plan import Check, Plan, ScoreColumns, quantities
from pairmill.catalog.recipe.thresholds import NUMBERS, Quantity
from pairmill.catalog.terms import text_columns
from pairmill.catalog.terms.score import Stage

BINS = 60
# share of values at either end that go to the last bin if they would stretch the axis by over 30 % (STRETCH)
TAIL = 0.005
STRETCH = 0.3
# Largest deviation of a model's value when repeated on another device, in reduced precision or with other batch sizes;
# relative for thresholds above 1 (a perplexity).
REPEAT = 1e-3
Rows = Callable[[str], list[dict[str, Any]]]


@dataclass(frozen=True)
class Histogram:
    """Histogram of one quantity: ``counts[i]`` values are in [low + i * width, low + (i + 1) * width)."""

    quantity: Quantity  # the measured quantity, with the thresholds of its rule
    kind: str  # 'image', 'sentence' or 'pair'
    low: float  # start of the axis; the first bin also counts the values below
    width: float
    counts: tuple[int, ...]  # values by bin; the last bin also counts the values beyond
    lowest: float
    highest: float
    missing: int  # scored items without a finite value
    is_whole: bool  # whether all values are integers
    n_near: int = 0  # values from a model that lie within REPEAT of a threshold, so another run may decide otherwise

    @property
    def high(self) -> float:
        """End of the axis: ``low`` + ``width`` times the number of bins."""
        return self.low + self.width * len(self.counts)


def histogram(
    rows: Rows, values: str, quantity: Quantity, kind: str, near_edges: Sequence[float] = ()
) -> Histogram | None:
    """Return the histogram of the SQL ``values``, one DOUBLE column ``v``; None without a finite value.

    ``rows`` runs a query: of a lake or of a gallery. ``n_near`` counts the values near ``near_edges``.
    """
    known = "FILTER (isfinite(v))"
    found = rows(f"""SELECT count(*) AS n, count(v) {known} AS known, min(v) {known} AS low, max(v) {known} AS high,
        bool_and(v = floor(v)) {known} AS whole, approx_quantile(v, [{TAIL}, {1 - TAIL}]) {known} AS tails
        FROM ({values})""")[0]
    if not found["known"]:
        return None
    lowest, highest, is_whole = found["low"], found["high"], found["whole"]
    low, width, n = _axis(quantity, (lowest, highest), found["tails"], is_whole)
    place = f"greatest(0, least({n - 1}, floor((v - {low!r}) / {width!r})))::INTEGER"
    is_near = " OR ".join(f"abs(v - {edge!r}) <= {REPEAT * max(1.0, abs(edge))!r}" for edge in near_edges) or "false"
    counted = rows(f"""SELECT {place} AS bin, count(*) AS n, count(*) FILTER ({is_near}) AS near FROM ({values})
        WHERE isfinite(v) GROUP BY bin""")
    by_bin = {row["bin"]: row["n"] for row in counted}
    counts = tuple(by_bin.get(bin, 0) for bin in range(n))
    missing, n_near = found["n"] - found["known"], sum(row["near"] for row in counted)
    return Histogram(quantity, kind, low, width, counts, lowest, highest, missing, is_whole, n_near)


def _axis(
    quantity: Quantity, ends: tuple[float, float], tails: Sequence[float], is_whole: bool
) -> tuple[float, float, int]:
    """Return (low, width, bins) of an axis over all values, but for far tails, and the thresholds near them."""
    low, high = ends
    if not (is_whole and high - low < BINS):
        most = STRETCH * max(min(high, tails[1]) - max(low, tails[0]), 1e-9)
        low, high = (tails[0] if tails[0] - low > most else low), (tails[1] if high - tails[1] > most else high)
    span = high - low
    near = [e for e in (quantity.low, quantity.high) if e is not None and low - span <= e <= high + span]
    low, high = float(min([low, *near])), float(max([high, *near]))
    if is_whole and low == int(low):
        width = max(1, -(-int(high - low + 1) // BINS))
        return low, float(width), max(1, -(-int(high - low + 1) // width))
    return low, (high - low) / BINS or 1.0, BINS


def histograms(lake: Lake, plan: Plan, upto: int) -> list[Histogram]:
    """Return a histogram for each quantity that a rule compares, then for each numeric score that no rule reads.

    Covers distinct images and sentences, in rows of commits <= ``upto``. Quantities without any value are left out. A
    table is read once for all of its quantities.
    """
    found = []
    for kind, checks, tables in (
        ("image", plan.image_checks, plan.image_tables),
        ("sentence", plan.sentence_checks, plan.sentence_tables),
    ):
        wanted = _quantities_to_draw([check for check in checks if check.name != "readable"], tables)
        by_source: dict[str, dict[int, Quantity]] = {}
        for place, quantity in enumerate(wanted):
            by_source.setdefault(_source(plan, quantity, kind, tables, upto), {})[place] = quantity
        drawn = {}
        for source, of_source in by_source.items():
            drawn |= _of_source(lake, source, of_source, kind, tables)
        found += [drawn[place] for place in sorted(drawn)]
    return found


def histograms_of(lake: Lake, sql: str, columns: Sequence[str], kind: str) -> list[Histogram]:
    """Return the histograms of the numeric ``columns`` of query ``sql``; leave out columns without a finite value."""
    lake.execute(f"CREATE OR REPLACE TEMP TABLE drawn_values AS {sql}")
    drawn = (
        histogram(lake.rows, f'SELECT CAST("{name}" AS DOUBLE) AS v FROM drawn_values', Quantity(name, (name,)), kind)
        for name in columns
    )
    return [each for each in drawn if each]


def _of_source(
    lake: Lake, source: str, wanted: Mapping[int, Quantity], kind: str, tables: Sequence[ScoreColumns]
) -> dict[int, Histogram]:
    """Return the histograms of quantities of one SQL ``source``, which is read once, into a temporary table."""
    columns = ", ".join(f"try_cast(({quantity.sql}) AS DOUBLE) AS q_{n}" for n, quantity in wanted.items())
    lake.execute(f"CREATE OR REPLACE TEMP TABLE drawn_values AS SELECT {columns} FROM ({source})")
    found = {
        n: histogram(lake.rows, f"SELECT q_{n} AS v FROM drawn_values", quantity, kind, _near_edges(quantity, tables))
        for n, quantity in wanted.items()
    }
    return {n: each for n, each in found.items() if each}


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


def _quantities_to_draw(checks: Sequence[Check], tables: Sequence[ScoreColumns]) -> list[Quantity]:
    """Return the quantities to draw: those of the rules, then the scores that no rule reads."""
    types = {column: sql_type for table in tables for column, sql_type in table.columns.items()}
    ruled = [quantity for check in checks for quantity in quantities(check, types)]
    drawn = {quantity.sql for quantity in ruled}
    scores = [c for table in tables for c in table.columns if types[c] in NUMBERS and table is not tables[0]]
    return ruled + [Quantity(column, (column,)) for column in scores if column not in drawn]


def _source(plan: Plan, quantity: Quantity, kind: str, tables: Sequence[ScoreColumns], upto: int) -> str:
    """Return SQL for distinct images or sentences with ``quantity``'s columns; one score table needs no join."""
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


def _near_edges(quantity: Quantity, tables: Sequence[ScoreColumns]) -> list[float]:
    """Return the thresholds of a quantity that a model measures: the values of a repeat differ a little."""
    read = [table for table in tables if not set(quantity.columns).isdisjoint(table.columns)]
    edges = [edge for edge in (quantity.low, quantity.high) if edge is not None]
    return edges if max((table.stage for table in read), default=Stage.INGEST) >= Stage.LANGUAGE else []


SAMPLE = 200_000  # pairs whose texts' lengths are counted
TEXTS = {"text1": "first sentence", "caption": "caption", "syn_text": "fused text"}


def similarity_histograms(lake: Lake, dataset: Dataset) -> list[Histogram]:
    """Return the histogram of each similarity of a version's pairs; similarities without a value are left out."""
    names = (*text_columns.similarities(dataset.n_texts), "caption_similarity", "synthetic_similarity")
    return histograms_of(lake, f"SELECT {', '.join(names)} FROM pairs WHERE {dataset.where}", names, "pair")


def length_histograms(lake: Lake, dataset: Dataset) -> list[Histogram]:
    """Return, for each kind of text, the histogram of its number of words in the SAMPLE pairs with the smallest ids.

    Words are counted by spaces: a text in a script without spaces is one word.
    """
    columns = ", ".join(
        f"(length(trim({text})) - length(replace(trim({text}), ' ', '')) + 1)::INTEGER AS \"words of {name}\""
        for text, name in TEXTS.items()
    )
    drawn = f"SELECT {', '.join(TEXTS)} FROM pairs WHERE {dataset.where} ORDER BY image_id LIMIT {SAMPLE}"
    blank = ", ".join(f"nullif({text}, '') AS {text}" for text in TEXTS)
    names = tuple(f"words of {name}" for name in TEXTS.values())
    return histograms_of(lake, f"SELECT {columns} FROM (SELECT {blank} FROM ({drawn}))", names, "pair")
