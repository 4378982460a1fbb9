"""Query a gallery file: pages of images by keyset, filtered and sorted by any column, and the values to filter by."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import duckdb

from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.queries.gallery.gallery_file import READER
from pairmill.catalog.recipe import predicate
from pairmill.catalog.recipe.thresholds import NUMBERS
from pairmill.catalog.terms.error import BadPredicate, PairmillError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa  # 0.1 CPU s, which a gallery without an area saves

PAGE = 60
FACET_VALUES = 200  # largest number of values offered for a filter
FACETS = {"source": "_source", "domain": "_domain", "language": "_language", "format": "format"}
_TYPES = ("BOOLEAN", "INTEGER", "BIGINT", "UBIGINT", "DOUBLE", "VARCHAR")
_CARD = ("image_id", "sha256", "shard", "width", "height", "alt_text", "url", "dropped_by", "_value", "_text1",
         "_caption", "_fused")  # fmt: skip

TERMS = 3  # of a cluster's name
SAMPLED = 200_000  # pictures that the names come from, those with the smallest ids, which are hashes
_WORD = "[a-zà-öø-ÿ]{4,}"
_DULL = ("about", "also", "been", "from", "have", "here", "into", "more", "other", "over", "some", "than", "that",
         "their", "them", "then", "there", "these", "they", "this", "very", "were", "what", "when", "where", "which",
         "will", "with", "your")  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """Filter of a gallery's images; fields at their defaults restrict nothing.

    ``fate``: 'kept', 'dropped', or the rule that drops. ``where``: a predicate as in a rule. ``score`` with ``low`` and
    ``high``: a numeric column and its range, both ends included or None. ``among``: sha256s in order of preference.
    ``sets``: images of an area of the map, images that differ between two versions; an image must be in each.
    """

    fate: str = ""
    source: str = ""
    domain: str = ""
    language: str = ""
    format: str = ""
    cluster: int | None = None
    group: str = ""
    tag: str = ""
    status: str = ""
    score: str = ""
    low: float | None = None
    high: float | None = None
    where: str = ""
    among: tuple[str, ...] | None = None
    sets: tuple["ImageSet", ...] = ()


@dataclass(frozen=True)
class ImageSet:
    """A set of images, possibly a million, as an Arrow table with the column ``key``: 'sha256' or 'image_id'."""

    members: "pa.Table" = field(compare=False)
    key: str = "sha256"


@dataclass(frozen=True)
class SortOrder:
    """Order of a gallery: by the numeric ``column``, images without a value last; by image id if it is ''."""

    column: str = ""
    descending: bool = False


@dataclass(frozen=True)
class GalleryPage:
    """Images of one page, and the key after which the next page starts; '' on the last page."""

    images: list[dict[str, Any]]
    after: str


@dataclass(frozen=True)
class Concept:
    """Counts of a version's pictures and texts for one concept, a name or a cluster; None for a field not counted.

    Attributes:
        name: The name as the user gave it; for a cluster, terms that its pictures have more often than others, ''
            without.
        pictures: Kept pictures that show the concept, by CLIP, or are in the cluster.
        dropped: Dropped pictures that do; pictures dropped before CLIP have no vector and do not count.
        sure: Mean probability, by CLIP, that the pictures show the name and not another word; 0 to 1.
        rule: The rule that dropped most of ``dropped``; '' without one.
        dropped_by_rule: Pictures that this rule dropped.
        texts: Pairs whose real texts contain the name, in singular or plural.
        alone: Pictures of ``dropped_by_rule`` that are known to fail no other rule.
        looser: The threshold that half of ``alone`` reach; None for a rule without a threshold.
        back: Pictures of ``alone`` whose value reaches ``looser``.
        cluster: Number of the cluster, as in ``pairs.cluster``.
        before: Pictures of the cluster that reach the cap.
        example: The kept picture of the cluster with the smallest id; '' without one.
    """

    name: str
    pictures: int
    dropped: int
    sure: float | None = None
    rule: str = ""
    dropped_by_rule: int = 0
    texts: int | None = None
    alone: int | None = None
    looser: float | None = None
    back: int | None = None
    cluster: int | None = None
    before: int | None = None
    example: str = ""


class Gallery:
    """An open gallery file of images and sampled sentences. Thread-safe: every query has a cursor of its own."""

    def __init__(self, path: Path) -> None:
        self._connection = duckdb.connect(str(path), read_only=True, config=READER)
        self.types = self._types("images")
        self._sentence_types = self._types("sentences")  # {} for the whole lake's file
        self.rule_columns = {n: t for n, t in self.types.items() if not n.startswith("_") and t in _TYPES}
        own = ("image_id", "sha256", "document_id", "shard", "group_id", "cluster", "dropped_by")
        self.numbers = [n for n, t in self.types.items() if t in NUMBERS and not n.startswith("_") and n not in own]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def columns(self, kind: str) -> Mapping[str, str]:
        """Return column -> SQL type of the images or of the sampled sentences; ``kind``: 'image' or 'sentence'."""
        return self.types if kind == "image" else self._sentence_types

    def _types(self, table: str) -> Mapping[str, str]:
        """Return column -> SQL type of a table, {} if the file does not have it."""
        # No parameter: DuckDB imports pandas at the first statement with one, for 0.25 CPU s.
        sql = f"SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = '{table}' ORDER BY column_index"
        return dict(self._connection.execute(sql).fetchall())

    def page(self, choice: Choice, order: SortOrder = SortOrder(), after: str = "", rows: int = PAGE) -> GalleryPage:
        """Return at most ``rows`` images of ``choice`` in ``order``, after the key ``after`` ('' for the first page).

        Raises PairmillError for an unknown column, predicate or key.
        """
        keys = f"SELECT _place AS place, {self._key(order, choice)} AS key FROM images WHERE {self._condition(choice)}"
        beyond = f" WHERE {self._beyond(after)}" if after else ""
        found = self.rows(f"SELECT * FROM ({keys}){beyond} ORDER BY key, place LIMIT {rows + 1}", *choice.sets)
        images = self._cards([row["place"] for row in found[:rows]], order.column)
        last = found[rows - 1]["key"] if len(found) > rows else None
        return GalleryPage(images, "" if last is None else f"{last!r},{images[-1]['image_id']}")

    def _cards(self, places: Sequence[int], column: str) -> list[dict[str, Any]]:
        """Return the images at ``places``, in order, with the column as ``shown``; a second query reads the texts."""
        if not places:
            return []
        columns = ", ".join(_CARD) + (f", {column} AS shown" if column else "")
        of = f"_place IN ({', '.join(map(str, places))})"
        found = {row.pop("_place"): row for row in self.rows(f"SELECT _place, {columns} FROM images WHERE {of}")}
        return [found[place] for place in places]

    def count(self, choice: Choice) -> int:
        """Count the images that pass the filter ``choice``."""
        return self.rows(f"SELECT count(*) AS n FROM images WHERE {self._condition(choice)}", *choice.sets)[0]["n"]

    def fates(self, choice: Choice) -> list[tuple[str, int]]:
        """Count the images of ``choice`` by the rule that drops them ('' for kept ones), ignoring ``choice.fate``."""
        where = self._condition(replace(choice, fate=""))
        sql = f"SELECT dropped_by AS fate, count(*) AS n FROM images WHERE {where} GROUP BY ALL ORDER BY n DESC, fate"
        return [(row["fate"], row["n"]) for row in self.rows(sql, *choice.sets) if row["fate"] is not None]

    def fates_of_pictures(self, choice: Choice) -> dict[str, str]:
        """Return what the version decided on each picture of ``choice``, by sha256.

        A value is 'kept', the name of the rule that dropped the picture, or 'not decided'.
        """
        fate = "coalesce(nullif(coalesce(min(dropped_by), 'not decided'), ''), 'kept')"
        sql = f"SELECT sha256, {fate} AS fate FROM images WHERE {self._condition(choice)} AND sha256 IS NOT NULL"
        return {row["sha256"]: row["fate"] for row in self.rows(f"{sql} GROUP BY sha256", *choice.sets)}

    def facet(self, column: str) -> list[tuple[Any, int]]:
        """Return (value, number of images) of a column's FACET_VALUES most frequent values other than NULL and ''."""
        counted = f"SELECT {column} AS value, count(*) AS n FROM images WHERE {column} IS NOT NULL GROUP BY ALL"
        sql = f"SELECT * FROM ({counted}) WHERE CAST(value AS VARCHAR) <> '' ORDER BY n DESC, value"
        return [(row["value"], row["n"]) for row in self.rows(f"{sql} LIMIT {FACET_VALUES}")]

    def tags(self) -> list[tuple[str, int]]:
        """Return (tag, number of images) of the FACET_VALUES most frequent tags."""
        each = "SELECT unnest(_tags) AS value FROM images"
        sql = f"SELECT value, count(*) AS n FROM ({each}) GROUP BY ALL ORDER BY n DESC, value LIMIT {FACET_VALUES}"
        return [(row["value"], row["n"]) for row in self.rows(sql)]

    def cluster_names(self, clusters: Sequence[int]) -> dict[int, str]:
        """Return cluster -> name, such as 'lighthouse, sea': its TERMS most telling terms; '' without texts.

        A term is a tag, or without tags a word of four letters or more of the first text. It is weighted by p * ln(p /
        q), a term of Kullback and Leibler's divergence, where p is its share of the cluster's pictures and q of all.
        """
        if not clusters:
            return {}
        among = ", ".join(str(int(each)) for each in clusters)
        dull = ", ".join(f"'{word}'" for word in _DULL)
        words = f"regexp_extract_all(lower(coalesce(_text1, '')), '{_WORD}')"
        sql = f"""WITH pictures AS MATERIALIZED (SELECT cluster,
                list_distinct(if(len(_tags) > 0, _tags, list_filter({words}, w -> w NOT IN ({dull})))) AS terms
            FROM (SELECT * FROM images ORDER BY image_id LIMIT {SAMPLED}) WHERE cluster IS NOT NULL),
        each AS MATERIALIZED (SELECT cluster, unnest(terms) AS term FROM pictures),
        sizes AS (SELECT cluster, count(*) AS n FROM pictures GROUP BY ALL),
        shares AS (SELECT term, count(*) / (SELECT count(*) FROM pictures) AS q FROM each GROUP BY ALL),
        own AS (SELECT cluster, term, count(*) AS n FROM each WHERE cluster IN ({among}) GROUP BY ALL),
        told AS (SELECT cluster, term, own.n / sizes.n AS p, q
            FROM own JOIN sizes USING (cluster) JOIN shares USING (term)
            WHERE own.n > 1 OR sizes.n = 1),
        best AS (SELECT *, row_number() OVER (PARTITION BY cluster ORDER BY p * ln(p / q) DESC, term) AS place
            FROM told)
        SELECT cluster, string_agg(term, ', ' ORDER BY place) AS name FROM best WHERE place <= {TERMS}
        GROUP BY cluster"""
        return {each: "" for each in clusters} | {row["cluster"]: row["name"] for row in self.rows(sql)}

    def named_clusters(self, most: int) -> list[Concept]:
        """Return the ``most`` largest clusters as concepts with names, by the number of images that reach the cap."""
        kept, lost = "dropped_by = ''", "dropped_by <> ''"
        rows = self.rows(f"""WITH fates AS (SELECT cluster, dropped_by, count(*) AS n, min(image_id) AS id FROM images
            WHERE cluster IS NOT NULL GROUP BY ALL)
            SELECT cluster, coalesce(sum(n) FILTER ({kept}), 0)::BIGINT AS pictures,
            coalesce(sum(n) FILTER ({lost}), 0)::BIGINT AS dropped,
            coalesce(first(dropped_by ORDER BY n DESC, dropped_by) FILTER ({lost}), '') AS rule,
            coalesce(max(n) FILTER ({lost}), 0) AS dropped_by_rule,
            coalesce(sum(n) FILTER (dropped_by IN ('', 'balance', 'max_uses')), 0)::BIGINT AS before,
            coalesce(min(id) FILTER ({kept}), '') AS example
            FROM fates GROUP BY cluster ORDER BY before DESC, sum(n) DESC, cluster LIMIT {most}""")
        names = self.cluster_names([row["cluster"] for row in rows])
        return [Concept(names[row["cluster"]], **row) for row in rows]

    def image(self, image_id: str) -> dict[str, Any] | None:
        """Return all columns of one image as a dictionary; None if the gallery does not have the image."""
        found = self.rows(f"SELECT * FROM images WHERE image_id = {quoted(image_id)}")
        return found[0] if found else None

    def image_with_bytes(self, sha256: str, nth: int) -> dict[str, Any]:
        """Return the ``nth`` image (from 0, by id) of picture ``sha256``: ids, dropped_by, and 160 letters of text."""
        shown = "image_id, sha256, dropped_by, left(coalesce(_text1, alt_text), 160) AS text"
        of = f"WHERE sha256 = {quoted(sha256)} ORDER BY image_id LIMIT 1 OFFSET {nth}"
        return self.rows(f"SELECT {shown} FROM images {of}")[0]

    def value_codes(self, column: str, n: int, none: int) -> tuple[list[str], "np.ndarray"]:
        """Return a column's ``n`` most frequent values, and each image's code (uint8) in the order of ``image_id``.

        The code is the value's index among these, ``n`` for any other value, ``none`` for NULL.
        """
        text = f"CAST({column} AS VARCHAR)"
        counted = f"SELECT {text} AS value, count(*) AS n FROM images WHERE {column} IS NOT NULL GROUP BY ALL"
        top = [row["value"] for row in self.rows(f"{counted} ORDER BY n DESC, value LIMIT {n}")]
        place = f"coalesce(list_position({_texts(top)}, {text}), {n + 1}) - 1"
        code = f"CASE WHEN {column} IS NULL THEN {none} ELSE {place} END"
        return top, self.column(f"CAST({code} AS UTINYINT)").to_numpy()

    def shards(self, sha256s: Sequence[str]) -> dict[str, str]:
        """Return sha256 -> home shard of the pictures among ``sha256s`` that the gallery has."""
        if not sha256s:
            return {}
        among = ", ".join(map(quoted, sha256s))
        rows = self.rows(f"SELECT DISTINCT sha256, shard FROM images WHERE sha256 IN ({among}) AND shard IS NOT NULL")
        return {row["sha256"]: row["shard"] for row in rows}

    def close(self) -> None:
        """Close the gallery file."""
        self._connection.close()

    def column(self, value: str) -> "pa.ChunkedArray":
        """Return the values of an SQL expression over the columns of every image, in the order of ``image_id``."""
        with self._connection.cursor() as cursor:
            return cursor.execute(f"SELECT {value} AS value FROM images ORDER BY _place").to_arrow_table()["value"]

    def pictures(self) -> "np.ndarray":
        """Return the sha256 of every image, (n,) S32, in the order of ``image_id``; b'' for an image without one.

        A million as Python's texts would take 80 MB, and twice that while they are converted.
        """
        import numpy as np
        import pyarrow as pa

        found = self.column("encode(rpad(coalesce(sha256, ''), 32, chr(0)))").cast(pa.binary(32)).combine_chunks()
        return np.frombuffer(found.buffers()[1], "S32", len(found), 32 * found.offset)

    def rows(self, sql: str, *sets: ImageSet) -> list[dict[str, Any]]:
        """Run a query and return its rows as dictionaries. Each call has its own cursor, so threads may query at once.

        The query sees each of ``sets`` as the table ``in_KEY``.
        """
        with self._connection.cursor() as cursor:
            try:
                for each in sets:
                    cursor.register(f"in_{each.key}", each.members)
                found = cursor.execute(sql)
                names = [column[0] for column in found.description or ()]
                return [dict(zip(names, row, strict=True)) for row in found.fetchall()]
            except duckdb.Error as error:  # such as a CAST in a predicate that fails on a value
                raise BadPredicate(f"this cannot be computed: {str(error).splitlines()[0]}") from error

    def _key(self, order: SortOrder, choice: Choice) -> str:
        """Return SQL of the first sort key, a DOUBLE: ascending, images without a value last."""
        if choice.among is not None and not order.column:
            return f"CAST(list_position({_texts(choice.among)}, sha256) AS DOUBLE)"
        if not order.column:
            return "0.0::DOUBLE"
        self._known(order.column)
        return f"coalesce({'-' if order.descending else ''}CAST({order.column} AS DOUBLE), 'inf'::DOUBLE)"

    def _beyond(self, after: str) -> str:
        """Return SQL for the rows after the key of a page, in the table's order. PairmillError for no such key."""
        value, _, image_id = after.partition(",")
        try:
            number = f"'{float(value)!r}'::DOUBLE"
            place = self.rows(f"SELECT _place AS place FROM images WHERE image_id = {quoted(image_id)}")[0]["place"]
        except (ValueError, IndexError):
            raise PairmillError(f"'{after[:80]}' is no place in a gallery; open the gallery again.") from None
        return f"key >= {number} AND NOT (key = {number} AND place <= {place})"

    def _known(self, column: str) -> None:
        if column not in self.numbers:
            raise PairmillError(f"there is no numeric column '{column}'; there are {', '.join(self.numbers)}.")

    def _condition(self, choice: Choice) -> str:
        """Return SQL for the images of a choice."""
        found = ["true"]
        if choice.fate:
            fates = {"kept": "dropped_by = ''", "dropped": "dropped_by <> ''"}
            found.append(fates.get(choice.fate, f"dropped_by = {quoted(choice.fate)}"))
        found += [f"{column} = {quoted(value)}" for name, column in FACETS.items() if (value := getattr(choice, name))]
        found += [] if choice.cluster is None else [f"cluster = {choice.cluster}"]
        found += [f"group_id = {quoted(choice.group)}"] if choice.group else []
        found += [f"list_contains(_tags, {quoted(choice.tag)})"] if choice.tag else []
        if choice.status and "caption_status" in self.types:
            found.append(f"caption_status = {quoted(choice.status)}")
        if choice.score:
            self._known(choice.score)
            found += [] if choice.low is None else [f"{choice.score} >= {_number(choice.low)}"]
            found += [] if choice.high is None else [f"{choice.score} <= {_number(choice.high)}"]
        if choice.where.strip():
            predicate.check("filter", choice.where, self.rule_columns)
            found.append(f"({predicate.normal_form('filter', choice.where)})")
        if choice.among is not None:
            found.append(f"sha256 IN (SELECT unnest({_texts(choice.among)}))")
        found += [f"{each.key} IN (SELECT {each.key} FROM in_{each.key})" for each in choice.sets]
        return " AND ".join(found)


def _texts(values: Sequence[str]) -> str:
    return f"[{', '.join(map(quoted, values))}]::VARCHAR[]"


def _number(value: float) -> str:
    if not math.isfinite(value):
        raise PairmillError(f"{value} is no finite number; write one such as 0.25.")
    return f"{value!r}::DOUBLE"
