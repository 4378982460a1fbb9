"""Show a rule over a gallery: a histogram of what it compares, images just beside its threshold, and a sample.

A threshold that moves is judged on the sample: the images with the smallest ids, which are hashes. Histograms of single
columns cannot tell how many images pass all rules, because rules drop the same images.
"""

from dataclasses import dataclass
from typing import Any

from pairmill.catalog.ask.gallery_query import Gallery
from pairmill.catalog.recipe import predicate
from pairmill.catalog.recipe.plan import Check, Plan
from pairmill.catalog.recipe.thresholds import Quantity, quantities

BINS = 60
SAMPLE = 2_000
NEAR = 8


@dataclass(frozen=True)
class RuleView:
    """One rule on images. ``quantity`` is set if the rule is only its bounds, which can then be moved.

    ``counts``: number of images by bin from ``low`` to ``high``. ``missing``: images without a value. ``sample``: of
    each sampled image its value, whether it passes all other rules that judge it, and whether it is kept.
    """

    check: Check
    quantity: Quantity | None
    low: float
    high: float
    counts: tuple[int, ...]
    missing: int
    sample: tuple[tuple[float | None, bool, bool], ...]


def rule_views(gallery: Gallery, plan: Plan) -> list[RuleView]:
    """Return a view of each rule on images of which the gallery has the columns, in the order of the cut."""
    known = [check for check in plan.image_checks if set(check.columns) <= gallery.types.keys()]
    return [_view(gallery, check, [other for other in known if other is not check]) for check in known]


def keep_of(quantity: Quantity) -> str:
    """Write the predicate of a quantity's bounds, as a recipe has it."""
    factor = f" * {quantity.under}" if quantity.under else ""
    is_open = None in (quantity.low, quantity.high) or quantity.strict_low or quantity.strict_high
    if not is_open and not factor:
        return f"{quantity.over} BETWEEN {quantity.low:g} AND {quantity.high:g}"
    parts = []
    for edge, sign, strict in ((quantity.low, ">", quantity.strict_low), (quantity.high, "<", quantity.strict_high)):
        if edge is not None:
            parts.append(f"{quantity.over} {sign}{'' if strict else '='} {edge:g}{factor}")
    return " AND ".join(parts)


def beside(gallery: Gallery, quantity: Quantity) -> dict[str, list[dict[str, Any]]]:
    """Return NEAR distinct pictures just below and just above each threshold, nearest first; ``shown`` is the value."""
    found = {}
    for edge in (quantity.low, quantity.high):
        for side, sign, order in (("below", "<", "DESC"), ("from", ">=", "ASC")):
            if edge is not None:
                where = f"isfinite(shown) AND shown {sign} {edge!r}"
                sql = f"SELECT image_id, sha256, dropped_by, CAST({quantity.sql} AS DOUBLE) AS shown FROM images"
                once = "QUALIFY row_number() OVER (PARTITION BY sha256 ORDER BY image_id) = 1"
                sql = f"SELECT * FROM ({sql}) WHERE {where} {once} ORDER BY shown {order}, image_id LIMIT {NEAR}"
                found[f"{side} {edge:g}"] = gallery.rows(sql)
    return found


def _view(gallery: Gallery, check: Check, others: list[Check]) -> RuleView:
    quantity = _movable(check, gallery)
    value = f"CAST({quantity.sql} AS DOUBLE)" if quantity else "NULL::DOUBLE"
    low, high, counts, missing = _histogram(gallery, value)
    passing = " AND ".join(f"coalesce({other.keep}, true)" for other in others) or "true"
    columns = f"{value} AS value, {passing} AS others, coalesce(dropped_by = '', false) AS kept"
    rows = gallery.rows(f"SELECT {columns} FROM images ORDER BY image_id LIMIT {SAMPLE}") if quantity else []
    sample = tuple((row["value"], row["others"], row["kept"]) for row in rows)
    return RuleView(check, quantity, low, high, counts, missing, sample)


def _movable(check: Check, gallery: Gallery) -> Quantity | None:
    """Return the quantity of a rule that says no more than its bounds, else None."""
    found = [each for each in quantities(check, gallery.types) if each.low is not None or each.high is not None]
    if len(found) != 1:
        return None
    return found[0] if predicate.normal_form(check.name, keep_of(found[0])) == check.keep else None


def _histogram(gallery: Gallery, value: str) -> tuple[float, float, tuple[int, ...], int]:
    """Return (low, high, counts, number of images without a finite value)."""
    values = f"(SELECT {value} AS v FROM images)"
    ranges = "min(v) FILTER (isfinite(v)) AS low, max(v) FILTER (isfinite(v)) AS high, count(*) AS n"
    found = gallery.rows(f"SELECT {ranges} FROM {values}")[0]
    low, high = found["low"], found["high"]
    if low is None:
        return 0.0, 1.0, (), found["n"]
    width = (high - low) / BINS or 1.0
    place = f"least({BINS - 1}, floor((v - {low!r}) / {width!r}))::INTEGER"
    rows = gallery.rows(f"SELECT {place} AS bin, count(*) AS n FROM {values} WHERE isfinite(v) GROUP BY bin")
    by_bin = {row["bin"]: row["n"] for row in rows}
    counts = tuple(by_bin.get(n, 0) for n in range(BINS))
    return low, high if high > low else low + 1.0, counts, found["n"] - sum(counts)
