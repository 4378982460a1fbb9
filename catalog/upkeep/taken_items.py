"""Find, ban and delete what a takedown removes: pictures, their occurrences, documents, and sentences of these alone.

The matches are temporary tables of the connection, which DuckDB spills to disk where memory is insufficient:

- ``taken_documents(document_id)``: named by id, by address, or of a named host;
- ``taken_pictures(sha256)``: named by content or address, of a named host, or held by taken documents alone;
- ``taken_images(image_id)``: every occurrence of a taken picture, wherever it is, and those of taken documents;
- ``taken_sentences(content, text)``: sentences that no other document holds;
- ``taken_own(sha256, text)``: captions and alt texts that only taken documents give to a picture that stays;
- ``taken_fused(sha256, input_digest, text)``: fused texts of other pictures that were made from a taken sentence or
  caption.

A picture that is named by content or address is removed from every page that shows it. A document's picture that
another page shows too stays there, as does a sentence that another page holds. Rows are deleted from every table, and
`partitions` is kept equal to the remaining rows. Older snapshots and the files still hold the rows, which
`tasks.upkeep.removal` erases.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.score_tables import scores_in
from pairmill.catalog.lake.table_meanings import removed_by
from pairmill.catalog.pending.changed_inputs import OWN_CAPTION
from pairmill.catalog.pending.chosen_captions import text_digest
from pairmill.catalog.pending.generated import fusion_digest
from pairmill.catalog.pending.quarantine import FORGOTTEN, discount, subtract
from pairmill.catalog.terms.scores import JUDGE_TEXT

TABLES = ("taken_documents", "taken_pictures", "taken_images", "taken_sentences", "taken_fused")
_HOST = "lower(regexp_extract({0}, '^[a-zA-Z][a-zA-Z0-9+.-]*://([^/?#@]*@)?([^/?#:]+)', 2))"
# SQL for whether a column names a taken item, by the kind of item.
_NAMES = {
    "picture": "{0} IN (SELECT sha256 FROM taken_pictures)",
    "image": "{0} IN (SELECT image_id FROM taken_images)",
    "document": "{0} IN (SELECT document_id FROM taken_documents)",
    "sentence": "{0} IN (SELECT content FROM taken_sentences)",
    "text": "{0} IN (SELECT text FROM taken_sentences UNION ALL SELECT text FROM taken_fused)",
    "own": "(sha256, {0}) IN (SELECT (sha256, text) FROM taken_own)",
    "unit": "{0} IN (SELECT unit FROM taken_units)",
}
_DOCUMENT = _NAMES["document"].format("document_id")
# A fused text made from a taken text goes, the scores of it too; the next run makes all again.
_FUSED = "(sha256, input_digest) IN (SELECT (sha256, input_digest) FROM taken_fused)"
_OF_FUSED = "sha256 IN (SELECT sha256 FROM taken_fused)"
# Own and fused texts that go, and taken sentences.
_OF_TEXTS = f"""(sha256, content) IN (SELECT (sha256, {text_digest("text")}) FROM taken_own UNION ALL SELECT (sha256,
    {text_digest("text")}) FROM taken_fused) OR content IN (SELECT {text_digest("text")} FROM taken_sentences)"""


@dataclass(frozen=True)
class Subject:
    """The pictures and documents that an owner asks to remove.

    ``urls`` are addresses of pictures or documents, with everything below an address that ends in a slash; ``hosts``
    include their subdomains; ``pictures`` are ids (32 hex digits of the sha256), ``documents`` ids of documents.
    ``items`` are the names from which the user's request was resolved to pictures and documents.
    """

    urls: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    pictures: tuple[str, ...] = ()
    documents: tuple[str, ...] = ()
    items: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All names by which removal was asked for: addresses, hosts, ids and items."""
        return (*self.urls, *map(str.lower, self.hosts), *self.pictures, *self.documents, *self.items)


@dataclass(frozen=True)
class Taken:
    """The number of distinct items of each kind that a takedown removes."""

    documents: int
    pictures: int
    images: int
    sentences: int
    fused: int

    @property
    def is_nothing(self) -> bool:
        """Whether no document, picture or image of the lake matches."""
        return not (self.documents or self.pictures or self.images)


def select(lake: Lake, subject: Subject) -> Taken:
    """Find the items that a takedown of ``subject`` removes: write their ids to the temporary tables TABLES.

    Returns the number of items of each kind. Takes one pass over ``documents`` and ``images``, and ``sentences`` if a
    document is taken: 30 million images and 800 million sentences are read in minutes, and the results held on disk.
    """
    for name, values in (("urls", subject.urls), ("hosts", [host.lower() for host in subject.hosts]),
                         ("pictures", subject.pictures), ("documents", subject.documents)):  # fmt: skip
        asked = "SELECT unnest(?::VARCHAR[]) AS value"
        lake.execute(f"CREATE OR REPLACE TEMP TABLE asked_{name} AS {asked}", (list(values),))
    _create(lake, "taken_documents", f"SELECT DISTINCT document_id FROM documents WHERE {named('uri')} "
            "OR document_id IN (SELECT value FROM asked_documents)")  # fmt: skip
    asked = f"SELECT sha256 FROM images WHERE {named('url')} UNION SELECT value FROM asked_pictures"
    if "fetches" in lake.tables:
        asked += f" UNION SELECT sha256 FROM fetches WHERE sha256 <> '' AND ({named('url')} OR {named('final_url')})"
    ours = "SELECT sha256 FROM images WHERE document_id IN (SELECT document_id FROM taken_documents)"
    alone = f"""SELECT sha256 FROM images WHERE sha256 IN ({ours}) GROUP BY sha256
        HAVING bool_and(document_id IN (SELECT document_id FROM taken_documents))"""
    held = "SELECT sha256 FROM payloads UNION SELECT sha256 FROM images"
    _create(lake, "taken_pictures", f"SELECT sha256 FROM ({asked} UNION {alone}) SEMI JOIN ({held}) USING (sha256)")
    _create(lake, "taken_images", "SELECT DISTINCT image_id FROM images WHERE sha256 IN (SELECT sha256 FROM "
            "taken_pictures) OR document_id IN (SELECT document_id FROM taken_documents)")  # fmt: skip
    _select_sentences(lake)
    return Taken(*(lake.query(f"SELECT count(*) FROM {name}")[0][0] for name in TABLES))


def read_selected(lake: Lake, table: str, column: str) -> set[str]:
    """Return the distinct values of one column of one of TABLES, after `select`."""
    return {value for (value,) in lake.query(f"SELECT {column} FROM {table}")}


def _select_sentences(lake: Lake) -> None:
    """Create ``taken_sentences``, ``taken_own`` and ``taken_fused``."""
    here = "document_id IN (SELECT document_id FROM taken_documents)"
    of_documents = f"SELECT content FROM sentences WHERE {here}"
    alone = f"SELECT content FROM sentences WHERE content IN ({of_documents}) GROUP BY content HAVING bool_and({here})"
    texts = "SELECT content, text FROM sentence_content UNION SELECT content, text FROM sentences"
    taken = f"SELECT DISTINCT content, text FROM ({texts}) SEMI JOIN ({alone}) USING (content)"
    _create(lake, "taken_sentences", taken)
    caption = f"json_extract_string(metadata, '$.{OWN_CAPTION}')"
    caption = f"CASE WHEN contains(metadata, '\"{OWN_CAPTION}\"') THEN {caption} END"
    own = f"""SELECT document_id, sha256, unnest([alt_text, {caption}]) AS text
        FROM images JOIN documents USING (document_id) WHERE sha256 IN (SELECT sha256 FROM images WHERE {here})"""
    _create(lake, "taken_own", f"SELECT sha256, text FROM ({own}) ANTI JOIN taken_pictures USING (sha256) "
            f"WHERE text <> '' GROUP BY ALL HAVING bool_and({here})")  # fmt: skip
    caption = "SELECT sha256, text FROM captions WHERE status = 'ok' UNION SELECT sha256, '' FROM synthetic"
    tag = "SELECT sha256, tags FROM tags UNION SELECT sha256, [] FROM synthetic"
    given = f"""SELECT DISTINCT m.sha256, {fusion_digest("c.text", "g.tags", "t.text")} AS input_digest
        FROM match_candidates m JOIN taken_sentences t USING (content) JOIN ({caption}) c USING (sha256)
        JOIN ({tag}) g USING (sha256)"""
    of_captions = "SELECT sha256, text FROM captions SEMI JOIN taken_own USING (sha256, text)"
    if lake.query(f"SELECT 1 FROM ({of_captions}) LIMIT 1"):  # else no pass over the texts of all sentences
        given += f""" UNION SELECT m.sha256, {fusion_digest("c.text", "g.tags", "t.text")}
            FROM match_candidates m JOIN sentence_content t USING (content) JOIN ({of_captions}) c USING (sha256)
            JOIN ({tag}) g USING (sha256)"""
    _create(lake, "taken_fused", "SELECT DISTINCT sha256, input_digest, synthetic_text AS text FROM synthetic "
            f"SEMI JOIN ({given}) USING (sha256, input_digest) ANTI JOIN taken_pictures USING (sha256)")  # fmt: skip


def _create(lake: Lake, name: str, sql: str) -> None:
    """Create one of the temporary tables."""
    lake.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {sql}")


def named(column: str) -> str:
    """Return an SQL condition: is address ``column`` named, below a named address, or on a named host?"""
    host = _HOST.format(column)
    return f"""({column} IN (SELECT value FROM asked_urls)
        OR EXISTS (SELECT 1 FROM asked_urls u WHERE u.value LIKE '%/' AND starts_with({column}, u.value))
        OR EXISTS (SELECT 1 FROM asked_hosts h WHERE {host} = h.value OR ends_with({host}, '.' || h.value)))"""


def ban(lake: Lake, takedown_id: str, reason: str, subject: Subject, listed: Iterable[tuple[str, str]]) -> None:
    """Ban the names of ``subject``, the taken pictures and the entries ``listed`` (kind, value); old bans stay."""
    sql = """INSERT INTO bans SELECT sha256, ?, now() FROM (SELECT sha256 FROM taken_pictures UNION SELECT value FROM
        asked_pictures) ANTI JOIN bans USING (sha256)"""
    lake.execute(sql, (reason,))
    values = [("address", each) for each in (*subject.urls, *(host.lower() for host in subject.hosts))]
    values += listed
    # By the address too: another reader gives the same page another id.
    documents = """SELECT 'document' AS kind, document_id AS value FROM taken_documents UNION ALL
        SELECT 'uri' AS kind, uri AS value FROM documents SEMI JOIN taken_documents USING (document_id)"""
    sql = f"""INSERT INTO taken_bans SELECT kind, value, ? FROM (SELECT unnest(?::VARCHAR[]) AS kind,
        unnest(?::VARCHAR[]) AS value UNION {documents}) ANTI JOIN taken_bans USING (kind, value)"""
    lake.execute(sql, (takedown_id, [kind for kind, _ in values], [value for _, value in values]))


def pictures_of(lake: Lake, image_ids: Sequence[str]) -> list[str]:
    """Return the distinct sha256s of the pictures of these images, sorted; unknown ids are ignored."""
    sql = "SELECT DISTINCT sha256 FROM images WHERE image_id IN (SELECT unnest(?::VARCHAR[])) ORDER BY ALL"
    return [sha256 for (sha256,) in lake.query(sql, (list(image_ids),))]


def pictures_by_shard(lake: Lake) -> dict[str, list[str]]:
    """Return the ids of all distinct pictures by home shard, sorted: 100 bytes of memory each."""
    return dict(lake.query("SELECT shard, list(sha256 ORDER BY sha256) FROM image_content GROUP BY 1 ORDER BY 1"))


def near_hash(lake: Lake, phash: int, bits: int) -> list[tuple[str, str, int]]:
    """Return (sha256, an address, Hamming distance) of pictures within ``bits`` of a perceptual hash, nearest first.

    One pass over ``image_hash``: 30 million take seconds.
    """
    distance = f"bit_count(xor(phash, {phash}::UBIGINT))"  # NULL for a picture without a hash
    return lake.query(f"""SELECT sha256, min(url), min({distance}) AS d FROM image_hash JOIN images USING (sha256)
        WHERE {distance} <= {bits} GROUP BY sha256 ORDER BY d, sha256""")


def conditions(lake: Lake) -> Iterator[tuple[str, str]]:
    """Yield (table, SQL condition on its rows) for each table from which a takedown deletes rows."""
    for table, columns in removed_by().items():
        if table in lake.tables:
            yield table, _names_taken(columns)
    for score in scores_in(lake):
        if score.table in lake.tables and score.table not in removed_by():
            where = _names_taken(score.removed_by)
            more = _FUSED if score.table == "synthetic" else _OF_FUSED if score.table.startswith("synthetic_") else ""
            more = _NAMES["own"].format("text") if score.table == "captions" else more
            more = _OF_TEXTS if score.table == JUDGE_TEXT.table else more
            yield score.table, f"({where} OR {more})" if more else where


def _names_taken(columns: Mapping[str, str]) -> str:
    """Return SQL for whether one of these columns names a taken item of its kinds."""
    found = [
        named(column) if kind == "address" else _NAMES[kind].format(column)
        for column, kinds in columns.items()
        for kind in kinds.split()
    ]
    return f"({' OR '.join(found)})"


def delete_rows(lake: Lake, commit: int) -> dict[str, int]:
    """Delete the rows that `select` found, within a transaction of the caller; return table -> number of deleted rows.

    Works in one pass over each table's key columns.
    """
    units = f"SELECT DISTINCT unit FROM documents WHERE {_DOCUMENT} AND unit NOT IN " \
            f"(SELECT unit FROM documents WHERE unit IS NOT NULL AND NOT {_DOCUMENT})"  # fmt: skip
    lake.execute(f"CREATE OR REPLACE TEMP TABLE taken_units AS {units}")
    found = {}
    # `documents` last: the conditions of the others may read it.
    for table, where in sorted(conditions(lake), key=lambda each: each[0] == "documents"):
        if n := lake.query(f"SELECT count(*) FROM {table} WHERE {where}")[0][0]:
            _delete(lake, table, where, commit)
            found[table] = n
    return found


def _delete(lake: Lake, table: str, where: str, commit: int) -> None:
    """Delete rows of one table, and subtract them from `partitions`."""
    names = {name for name, *_ in lake.query(f"DESCRIBE {table}")}
    shard = "shard" if "shard" in names else "'all' AS shard"  # rows over all shards are recorded under that name
    by = ["scorer"] if "scorer" in names else ['"commit"'] if "shard" in names else []
    if by:
        counted = f"SELECT {shard}, {by[0]}, count(*) AS n FROM {table} WHERE {where} GROUP BY ALL"
        lake.execute(f"CREATE OR REPLACE TEMP TABLE {FORGOTTEN} AS {counted}")
    lake.execute(f"DELETE FROM {table} WHERE {where}")
    if by == ["scorer"] and "shard" in names:
        discount(lake, table, f"{table} taken down {commit}", commit)
    elif by == ["scorer"]:
        subtract(lake, table, f"{table} taken down {commit}", commit)  # rows that were computed over all shards
        _forget_paths(lake, table)
    elif by:  # rows of pages: each shard and commit has one partition of the table
        lake.execute(f"""UPDATE partitions SET rows = partitions.rows - t.n FROM {FORGOTTEN} t WHERE "table" = '{table}'
            AND partitions.shard = t.shard AND partitions."commit" = t."commit" AND partitions.rows >= t.n""")
        _forget_paths(lake, table)


def _forget_paths(lake: Lake, table: str) -> None:
    """Forget the paths of files of which no row is left: DuckLake removes them."""
    paths = f"SELECT DISTINCT filename FROM {table}"
    sql = f"""UPDATE partitions SET path = '' WHERE "table" = '{table}' AND path <> ''
        AND concat(?, path) NOT IN ({paths})"""
    lake.execute(sql, (lake.data_path,))
