"""Show a rule over a gallery: histograms of what it compares, items just beside its threshold, and a sample.

A threshold that moves is judged on the sample: the items with the smallest ids, which are hashes. Histograms of single
columns cannot tell how many items pass all rules, because rules drop the same items.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pairmill.catalog.queries.figures.histogram import Histogram, histogram
from pairmill.catalog.queries.gallery.gallery_query import Gallery
from pairmill.catalog.recipe import predicate
from pairmill.catalog.recipe.plan import Check, Plan, quantities
from pairmill.catalog.recipe.thresholds import Quantity, bounds

SAMPLE = 2_000
NEAR = 8
_TABLES = {"image": ("images", "image_id"), "sentence": ("sentences", "content")}


@dataclass(frozen=True)
class RuleView:
    """One rule on images or sentences, with the distribution of what it compares, and items beside its edges.

    ``quantity``: what the rule compares, if the rule is a lower or upper threshold and nothing else; only such a
    threshold can be moved. ``kind``: 'image' or 'sentence'. ``histograms``: of each quantity that has values, the
    movable one alone if there is one. ``sample``: of each sampled item its value, whether it passes all other rules
    that judge it, and whether it is kept. ``near``: see `beside`.
    """

    kind: str
    check: Check
    quantity: Quantity | None
    histograms: tuple[Histogram, ...]
    sample: tuple[tuple[float | None, bool, bool], ...]
    near: dict[str, list[dict[str, Any]]]


def rule_views(gallery: Gallery, plan: Plan) -> list[RuleView]:
    """Return a view of each rule of which the gallery has the columns: those on images, then those on sentences.

    A kind's rules stand in the order of the cut.
    """
    views = []
    for kind in _TABLES:
        known = [check for check in plan.checks(kind) if set(check.columns) <= gallery.columns(kind).keys()]
        views += [_view(gallery, kind, check, [other for other in known if other is not check]) for check in known]
    return views


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


def beside(gallery: Gallery, quantity: Quantity, kind: str = "image") -> dict[str, list[dict[str, Any]]]:
    """Return NEAR distinct items just below and just above each threshold, nearest first; ``shown`` is the value."""
    table, key = _TABLES[kind]
    columns, distinct = ("image_id, sha256", "sha256") if kind == "image" else ("content, text", "content")
    found = {}
    for edge in (quantity.low, quantity.high):
        for side, sign, order in (("below", "<", "DESC"), ("from", ">=", "ASC")):
            if edge is not None:
                where = f"isfinite(shown) AND shown {sign} {edge!r}"
                sql = f"SELECT {columns}, dropped_by, CAST({quantity.sql} AS DOUBLE) AS shown FROM {table}"
                once = f"QUALIFY row_number() OVER (PARTITION BY {distinct} ORDER BY {key}) = 1"
                sql = f"SELECT * FROM ({sql}) WHERE {where} {once} ORDER BY shown {order}, {key} LIMIT {NEAR}"
                found[f"{side} {edge:g}"] = gallery.rows(sql)
    return found


def beside_predicate(gallery: Gallery, kind: str, rule: str, keep: str) -> dict[str, list[dict[str, Any]]]:
    """Return the items beside every threshold of a predicate; see `beside`. Raise BadPredicate if it is none."""
    known = bounds(rule, predicate.normal_form(rule, keep)).values()
    return {side: rows for each in known for side, rows in beside(gallery, each, kind).items()}


def _view(gallery: Gallery, kind: str, check: Check, others: list[Check]) -> RuleView:
    table, key = _TABLES[kind]
    types = gallery.columns(kind)
    quantity = _movable(check, types)
    compared = [quantity] if quantity else quantities(check, types)
    drawn = [histogram(gallery.rows, f"SELECT CAST({q.sql} AS DOUBLE) AS v FROM {table}", q, kind) for q in compared]
    value = f"CAST({quantity.sql} AS DOUBLE)" if quantity else "NULL::DOUBLE"
    passing = " AND ".join(f"coalesce({other.keep}, true)" for other in others) or "true"
    columns = f"{value} AS value, {passing} AS others, coalesce(dropped_by = '', false) AS kept"
    rows = gallery.rows(f"SELECT {columns} FROM {table} ORDER BY {key} LIMIT {SAMPLE}") if quantity else []
    sample = tuple((row["value"], row["others"], row["kept"]) for row in rows)
    near = beside(gallery, quantity, kind) if quantity else {}
    return RuleView(kind, check, quantity, tuple(each for each in drawn if each), sample, near)


def _movable(check: Check, types: Mapping[str, str]) -> Quantity | None:
    """Return the quantity of a rule that says no more than its bounds, else None."""
    found = [each for each in quantities(check, types) if each.low is not None or each.high is not None]
    if len(found) != 1:
        return None
    return found[0] if predicate.normal_form(check.name, keep_of(found[0])) == check.keep else None
