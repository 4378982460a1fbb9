"""Find the objects that an id, an address or a text names, and the rows that explain why an item was kept or dropped.

Queries filter by one key with ``=``, so row-group ranges and bloom filters skip the other row groups unread; scores by
content are read only in the content's home shard: one file instead of hundreds. Queries filter and sort by little else,
because for every column compared DuckLake scans its statistics of all files, twice for sorted rows (200 files per
table: 0.10 s instead of 0.03); the few rows are filtered in Python. Results are dictionaries of names and plain values.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.pending import chosen_captions
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.figures.report import plan_of
from pairmill.catalog.recipe.plan import Check, Plan, ScoreColumns, tables_of
from pairmill.catalog.terms.declared import declared
from pairmill.catalog.terms.scores import named_in

Facts = dict[str, Any]
_DOCUMENT = "* EXCLUDE (shard)"
MOST = 20  # largest number of rows per list
# The smallest Jaro-Winkler similarity of a mistyped address, and the most addresses that are compared for it.
ALIKE, MOST_COMPARED = 0.85, 1_000_000
_PLACED = re.compile(r"(.+)[#&]image=(\d{1,9})", re.DOTALL)


@dataclass(frozen=True)
class Resolved:
    """The objects that an item (id, address, text) names; false if it names none.

    ``images``: image ids. ``sentences``: content ids. The other fields are rows of the tables ``documents`` and
    ``quarantine``, and linked addresses with their fetches.
    """

    images: list[str] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)
    documents: list[Facts] = field(default_factory=list)
    quarantine: list[Facts] = field(default_factory=list)
    addresses: list[Facts] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.images or self.sentences or self.documents or self.quarantine or self.addresses)


@dataclass(frozen=True)
class Scope:
    """The rows to explain from: those of a dataset version's commit and scorers, or without a dataset the newest.

    ``scorers`` are digests by name. ``filled`` are the tables with rows in files: an empty one takes longer (0.05 s).
    """

    filled: frozenset[str]
    dataset: Dataset | None = None
    plan: Plan | None = None
    scorers: dict[str, str] = field(default_factory=dict)

    @property
    def upto(self) -> int:
        """The highest commit number in scope: the dataset's, or without one a number above all."""
        return self.dataset.commit if self.dataset else 2**62

    def tables(self, kind: str) -> tuple[ScoreColumns, ...]:
        """Return the score columns of ``kind`` ('image', 'sentence') in scope: the dataset's, or all declared ones."""
        return tables_of(kind, self.plan.scores if self.plan else (*declared(), *named_in(self.filled)))

    def newest(self, rows: list[Facts], scorer: str) -> Facts:
        """Return the newest row in scope (with a dataset, by ``scorer``), without columns scorer and commit, or {}."""
        by = (row for row in rows if row["commit"] <= self.upto and (self.dataset is None or row["scorer"] == scorer))
        last = max(by, key=lambda row: row["commit"], default={})
        return {name: value for name, value in last.items() if name not in ("scorer", "commit")}


def scope_of(lake: Lake, dataset: Dataset | None) -> Scope:
    """Return the scope of a dataset version, or the scope of the lake's newest rows if ``dataset`` is None."""
    held = lake.query("SELECT table_name FROM ducklake_table_info('lake') WHERE file_count > 0")
    filled = frozenset(name for (name,) in held)
    if dataset is None:
        return Scope(filled)
    return Scope(filled, dataset, plan_of(lake, dataset), dataset.scorers_by_name(lake))


def similar_addresses(lake: Lake, item: str) -> list[str]:
    """Return the end of the picture's address most like ``item``, if it is like it; [] in a large lake.

    Compares with every address: 0.3 CPU s for a million, the most that it does.
    """
    tail = f"list_reverse(list_reverse(string_split(url, '/'))[:{item.count('/') + 1}]).array_to_string('/')"
    sql = f"""SELECT tail FROM (SELECT {tail} AS tail FROM images) WHERE jaro_winkler_similarity(tail, ?) >= {ALIKE}
        ORDER BY jaro_winkler_similarity(tail, ?) DESC, tail LIMIT 1"""
    if lake.query("SELECT count(*) FROM images")[0][0] > MOST_COMPARED:
        return []
    return [tail for (tail,) in lake.query(sql, (item, item))]


def resolve(lake: Lake, item: str, content: str) -> Resolved:
    """Find the objects that ``item`` names: an id, a sha256 of 32 or 64 hex digits, an address, or a sentence's text.

    An address is that of an image or a page, its end, or the released address of an image. ``content`` is the content
    id of ``item`` taken as a sentence.
    """
    if re.fullmatch(r"[0-9a-f]{32}|[0-9a-f]{64}", item) and (found := _by_id(lake, item[:32])):
        return found
    released = "SELECT DISTINCT image_id FROM pairs WHERE raw_image_url = ? ORDER BY ALL"
    found = _by_address(lake, "{} = ?", item, content)
    found = found or Resolved(images=[image_id for (image_id,) in lake.query(released, (item,))])
    if not found and "://" not in item and not item.startswith("/") and len(item) < 300:
        found = _by_address(lake, "ends_with({}, '/' || ?)", item, content) or _in_document(lake, item)
    return found


def _in_document(lake: Lake, item: str) -> Resolved:
    """Look up an image by its position in a document, as in a released address: ``000/0001.html#image=3``."""
    if (placed := _PLACED.fullmatch(item)) is None:
        return Resolved()
    sql = """SELECT image_id FROM images WHERE position = ? AND document_id IN (SELECT document_id FROM documents WHERE
        ends_with(uri, '/' || ?)) ORDER BY ALL"""
    return Resolved(images=[row[0] for row in lake.query(sql, (int(placed[2]), placed[1]))])


def _by_id(lake: Lake, key: str) -> Resolved:
    """Look up an id in one table after another, smaller first; `explain_image` collects faults of image bytes."""
    for where in ("image_id = ?", "sha256 = ?"):
        if images := lake.query(f"SELECT image_id FROM images WHERE {where}", (key,)):
            return Resolved(images=sorted(row[0] for row in images))
    faults = quarantine(lake, "item = ? OR payload_ref = ?", (key, key))
    if documents := lake.rows(f"SELECT {_DOCUMENT} FROM documents WHERE document_id = ? ORDER BY uri", (key,)):
        return Resolved(documents=documents, quarantine=faults)
    return Resolved(sentences=_sentences(lake, key), quarantine=faults)


def _sentences(lake: Lake, key: str) -> list[str]:
    """Return the content ids of the sentence with this content id or sentence id."""
    for table, column in (("sentence_content", "content"), ("sentences", "content"), ("sentences", "sentence_id")):
        if found := lake.query(f"SELECT DISTINCT content FROM {table} WHERE {column} = ?", (key,)):
            return [row[0] for row in found]
    return []


def _by_address(lake: Lake, address: str, value: str, content: str) -> Resolved:
    """Look up an address, or a sentence by its ``content``; ``address`` is an SQL condition with {} for the column."""
    images = f"SELECT image_id FROM images WHERE {address.format('url')} ORDER BY ALL"
    documents = f"SELECT {_DOCUMENT} FROM documents WHERE {address.format('uri')} ORDER BY uri"
    return Resolved(
        [row[0] for row in lake.query(images, (value,))],
        _sentences(lake, content),
        lake.rows(documents, (value,)),
        quarantine(lake, f"{address.format('item')} OR payload_ref = ?", (value, value)),
        lake.rows(_ADDRESSES.format(where=address.format("url")), (value, value)),
    )


# Outcome of the last fetch, if any, and the number of documents that link to the address.
_ADDRESSES = f"""
    SELECT l.url, l.documents, f.reason, f.http_status, f.detail, f.attempts, f.passing, f.fetched_at, f.final_url
    FROM (SELECT url, count(DISTINCT document_id) AS documents FROM links WHERE {{where}} GROUP BY url LIMIT {MOST}) l
    LEFT JOIN (SELECT * FROM fetches WHERE {{where}} QUALIFY row_number() OVER
    (PARTITION BY url ORDER BY "commit" DESC) = 1) f ON f.url = l.url ORDER BY l.url"""


def superseded_at(lake: Lake, document_id: str) -> int | None:
    """Return the commit since which the document is gone from its source; None if it is current."""
    said = lake.query('SELECT "commit", gone FROM superseded WHERE document_id = ?', (document_id,))
    commit, gone = max(said, default=(0, False))
    return commit if gone else None


def quarantine(lake: Lake, where: str, values: tuple) -> list[Facts]:
    """Return at most MOST rows of ``quarantine`` that meet the SQL condition ``where`` with parameters ``values``."""
    columns = "item, source, stage, reason, detail, run_id"
    sql = f"SELECT DISTINCT {columns} FROM quarantine WHERE {where} ORDER BY ALL LIMIT {MOST}"
    return lake.rows(sql, values)


def rows_of_key(
    lake: Lake, scope: Scope, table: str, columns: str, key: str, value: str, where: str = ""
) -> list[Facts]:
    """Return the rows of ``table`` with ``key`` = ``value``; [] without a query if the table is empty.

    ``where`` is further SQL to append to the condition.
    """
    if table not in scope.filled:
        return []
    return lake.rows(f"SELECT {columns} FROM {table} WHERE {key} = ?{where}", (value,))


def home_filter(lake: Lake, table: str, key: str, value: str) -> str:
    """Return SQL (`` AND shard = '…'``) for the home shard of content ``value``; '' if ``table`` lacks the content."""
    found = lake.query(f"SELECT shard FROM {table} WHERE {key} = ?", (value,))
    return "".join(f" AND shard = {quoted(shard)}" for (shard,) in found[:1] if shard is not None)


def scores(lake: Lake, scope: Scope, tables: Sequence[ScoreColumns], key: str, value: str, in_home_shard: str) -> Facts:
    """Return score column -> value for one content: from the dataset's scorers, without a dataset the newest."""
    found: Facts = {}
    for table in tables[1:]:
        columns = ", ".join(f"{source} AS {name}" for name, source in table.source.items())
        if scope.plan and scope.plan.chooses_captions and table.table in chosen_captions.chosen_tables(scope.plan):
            only = f"{key} = {quoted(value)}{in_home_shard}"
            rows = chosen_captions.chosen_rows(scope.plan, table.table, scope.upto, only)
            found |= next(iter(lake.rows(f"SELECT {columns} FROM {rows}")), {})
            continue
        digest = scope.plan.scorer(table.table) if scope.plan else ""
        if scope.plan and not digest:
            continue
        rows = rows_of_key(lake, scope, table.table, f'{columns}, scorer, "commit"', key, value, in_home_shard)
        found |= scope.newest(rows, digest)
    return found


def evaluate_rules(lake: Lake, checks: Sequence[Check], tables: Sequence[ScoreColumns], values: Facts) -> list[Facts]:
    """Evaluate each rule on ``values``; ``kept`` is None if a score is missing.

    A score is missing if an earlier rule dropped the item.
    """
    if not checks:
        return []
    types = {name: kind for table in tables for name, kind in table.columns.items()}
    read = sorted({column for check in checks for column in check.columns})
    row = ", ".join(f'CAST(? AS {types[column]}) AS "{column}"' for column in read) or "1"
    keeps = ", ".join(f"({check.keep})" for check in checks)
    kept = lake.query(f"SELECT {keeps} FROM (SELECT {row})", [values.get(column) for column in read])[0]
    found = []
    for check, keep in zip(checks, kept, strict=True):
        is_kept = bool(keep) if all(column in values for column in check.columns) else None
        compared = {column: values.get(column) for column in check.columns}
        found.append({"rule": check.name, "keep": check.shown, "values": compared, "kept": is_kept})
    return found
