"""Read the views of a gallery: rules with items beside their thresholds; pictures by fate, duplicate group and cluster.

Samples are the items with the smallest ids, which are hashes. A threshold that moves is judged on such a sample:
histograms of single columns cannot tell how many items pass all rules, because rules drop the same items.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pairmill.catalog.queries.figures.histogram import Histogram, histogram
from pairmill.catalog.queries.gallery.gallery_query import FACETS, Gallery
from pairmill.catalog.recipe import predicate
from pairmill.catalog.recipe.plan import Check, Plan, quantities
from pairmill.catalog.recipe.thresholds import Quantity, bounds

SAMPLE = 2_000
NEAR = 8
_TABLES = {"image": ("images", "image_id"), "sentence": ("sentences", "content")}
STRIP = 12  # images kept, and images of each rule that drops
GROUPS, MEMBERS = 8, 8
CLUSTERS, OF_CLUSTER = 12, 8
VALUES = 12  # rows of a breakdown
LONGEST = 200  # characters of a text
_SHOWN = (
    f"image_id, sha256, shard, width, height, left(alt_text, {LONGEST}) AS alt_text, dropped_by, _value AS value, "
    f"left(_text1, {LONGEST}) AS text1"
)


@dataclass(frozen=True)
class RuleView:
    """One rule on images or sentences, with the distribution of the values it compares, and items near its thresholds.

    ``quantity``: the compared quantity, if the rule is one lower or upper threshold alone, else None: only that can be
    moved. ``kind``: 'image' or 'sentence'. ``histograms``: one per quantity with values; of ``quantity`` alone if it is
    set. ``sample``: (value, passes all other rules, is kept) of each sampled item. ``near``: see `beside`.
    """

    kind: str
    check: Check
    quantity: Quantity | None
    histograms: tuple[Histogram, ...]
    sample: tuple[tuple[float | None, bool, bool], ...]
    near: dict[str, list[dict[str, Any]]]


def rule_views(gallery: Gallery, plan: Plan) -> list[RuleView]:
    """Return a view of each rule whose columns the gallery has: rules on images, then rules on sentences.

    The rules of each kind are in the order of the cut.
    """
    views = []
    for kind in _TABLES:
        known = [check for check in plan.checks(kind) if set(check.columns) <= gallery.columns(kind).keys()]
        views += [_view(gallery, kind, check, [other for other in known if other is not check]) for check in known]
    return views


def keep_of(quantity: Quantity) -> str:
    """Write the bounds of a quantity as a rule's predicate, such as ``width BETWEEN 100 AND 900``."""
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
    """Return the NEAR distinct items just below and just above each threshold of ``quantity``, nearest first.

    Keys name the side and the threshold. Column ``shown`` is the item's value.
    """
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
    """Return the items beside every threshold of predicate ``keep``, as `beside`. Raise BadPredicate if it is wrong."""
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


def by_fate(gallery: Gallery) -> dict[str, list[dict[str, Any]]]:
    """Return rule -> STRIP distinct pictures that it drops; '' -> STRIP kept pictures."""
    once = f"""SELECT {_SHOWN} FROM images WHERE dropped_by IS NOT NULL QUALIFY row_number() OVER
        (PARTITION BY dropped_by, sha256 ORDER BY image_id) = 1"""
    rows = gallery.rows(f"""SELECT * FROM ({once}) QUALIFY row_number() OVER (PARTITION BY dropped_by ORDER BY image_id)
        <= {STRIP} ORDER BY dropped_by, image_id""")
    return _by(rows, "dropped_by")


def distinct_pictures(gallery: Gallery) -> dict[str, int]:
    """Return rule -> number of distinct pictures that it drops: an icon on a thousand pages counts once."""
    rows = gallery.rows("SELECT dropped_by, count(DISTINCT sha256) AS n FROM images WHERE dropped_by <> '' GROUP BY 1")
    return {row["dropped_by"]: row["n"] for row in rows}


def duplicate_groups(gallery: Gallery) -> list[list[dict[str, Any]]]:
    """Return the GROUPS largest duplicate groups from which the rule 'duplicate' dropped an image, the keeper first.

    Each group has at most MEMBERS distinct pictures. ``is_keeper`` marks the kept one; a sampled gallery may lack it.
    """
    groups = f"""SELECT group_id, count(DISTINCT sha256) AS n FROM images WHERE group_id IN (SELECT group_id FROM images
        WHERE dropped_by = 'duplicate') GROUP BY group_id ORDER BY n DESC, group_id LIMIT {GROUPS}"""
    rows = gallery.rows(
        f"""WITH chosen AS ({groups}), keepers AS (SELECT DISTINCT _value AS image_id FROM images
            WHERE dropped_by = 'duplicate'),
        members AS (SELECT {_SHOWN}, n, group_id, image_id IN (SELECT image_id FROM keepers) AS is_keeper
            FROM images JOIN chosen USING (group_id)),
        once AS (SELECT * FROM members QUALIFY row_number() OVER
            (PARTITION BY group_id, sha256 ORDER BY is_keeper DESC, image_id) = 1)
        SELECT * FROM once QUALIFY row_number() OVER
            (PARTITION BY group_id ORDER BY is_keeper DESC, image_id) <= {MEMBERS}
        ORDER BY n DESC, group_id, is_keeper DESC, image_id"""
    )
    return list(_by(rows, "group_id").values())


def clusters(gallery: Gallery) -> list[dict[str, Any]]:
    """Return the CLUSTERS clusters with most kept images, as dictionaries of ``cluster, kept, images``.

    ``images`` are at most OF_CLUSTER of the cluster's kept images.
    """
    sizes = gallery.rows(f"""SELECT cluster, count(*) AS kept FROM images WHERE dropped_by = '' AND cluster IS NOT NULL
        GROUP BY cluster ORDER BY kept DESC, cluster LIMIT {CLUSTERS}""")
    among = ", ".join(str(each["cluster"]) for each in sizes) or "NULL"
    shown = gallery.rows(f"""SELECT {_SHOWN}, cluster FROM images WHERE dropped_by = '' AND cluster IN ({among}) QUALIFY
        row_number() OVER (PARTITION BY cluster ORDER BY image_id) <= {OF_CLUSTER} ORDER BY image_id""")
    images = _by(shown, "cluster")
    return [{**size, "images": images[size["cluster"]]} for size in sizes]


def breakdown(gallery: Gallery) -> dict[str, list[dict[str, Any]]]:
    """Count images by source, domain, language and format: rows of ``value, images, kept, worst_rule, n_worst``.

    Each has its VALUES most frequent values; the others are summed under None. ``worst_rule`` is the rule that drops
    most of the images, ``n_worst`` their number.
    """
    return {name: _values(gallery, column) for name, column in FACETS.items()}


def _values(gallery: Gallery, column: str) -> list[dict[str, Any]]:
    """Return the rows of one breakdown, most images first."""
    return gallery.rows(
        f"""WITH top AS (SELECT {column} AS value FROM images WHERE coalesce({column}, '') <> '' GROUP BY ALL
            ORDER BY count(*) DESC, value LIMIT {VALUES}),
        fates AS (SELECT if({column} IN (SELECT value FROM top), {column}, NULL) AS value, dropped_by AS fate,
            count(*) AS n FROM images GROUP BY ALL)
        SELECT left(value, {LONGEST}) AS value, sum(n)::BIGINT AS images,
            coalesce(sum(n) FILTER (fate = ''), 0)::BIGINT AS kept,
            arg_max(fate, (n, fate)) FILTER (fate <> '') AS worst_rule,
            coalesce(max(n) FILTER (fate <> ''), 0)::BIGINT AS n_worst
        FROM fates GROUP BY fates.value ORDER BY fates.value IS NULL, images DESC, fates.value"""
    )


def _by(rows: list[dict[str, Any]], column: str) -> dict[Any, list[dict[str, Any]]]:
    """Group rows by a column, in their order."""
    found: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row[column], []).append(row)
    return found
