"""Read a version's pairs in the order of an export, with their sizes, hosts and licences."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

import numpy as np
import pyarrow as pa

from pairmill.catalog.cut.released_address import released_pages
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.lake.schema import columns
from pairmill.catalog.pending.eligible import AFTER_ALL, sentence_rows
from pairmill.catalog.pending.row_files import paths_by_shard
from pairmill.catalog.queries.captioned import captions_of
from pairmill.catalog.queries.datasets import Dataset, find
from pairmill.catalog.queries.export.selected_pairs import Selection
from pairmill.catalog.queries.figures.report import plan_of
from pairmill.catalog.terms import text_columns
from pairmill.catalog.terms.error import PairmillError

PICTURE_SHARDS = "SELECT DISTINCT shard FROM export_rows WHERE shard IS NOT NULL"
TYPED = 5  # samples from which `datasets` infers the columns' types
MOST = 100  # hosts and licences that are listed, by their number of rows
_PATHS = ("$.license", '$."dcterms.license"', "$.rights", '$."dc.rights"', '$."dcterms.rights"')
SHARDS_OF_ITEMS = "SELECT DISTINCT shard FROM (SELECT unnest(items).shard AS shard FROM export_rows) WHERE shard > ''"


@dataclass(frozen=True)
class RowOrder:
    """Selection and order of an export's rows."""

    by_shard: bool = False  # order by the shard that holds the image's bytes, then by id; else by id alone
    typical_first: bool = False  # begin with the most typical pairs, for previews
    # order by a hash of this seed and the id instead, a shuffle of the whole dataset; None for none
    seed: int | None = None
    # order by the first version of the dataset that has the picture, then by shard and sha256: the rows that a later
    # version adds come last. The column `version` is that first version.
    grows: bool = False
    # repeat a pair for each of these columns in which it has a text, named in the column `text_column`
    each_of: tuple[str, ...] = ()


def pair_columns(selected: Selection) -> dict[str, str]:
    """Return column -> DuckDB type of the selected pairs, in the order of ``pairs``."""
    beyond = text_columns.beyond(selected.n_texts, selected.optional_columns)
    return {name: kind for name, kind in columns("pairs").items() if name not in beyond}


def lake_id(lake: Lake) -> str:
    """Return the lake's unique id, which stays when the lake moves: the UUID of its DuckLake schema."""
    return lake.metadata.read("SELECT schema_uuid FROM ducklake_schema WHERE schema_name = 'main'")[0][0]


def gather(lake: Lake, selected: Selection, order: RowOrder, with_captions: str = "") -> None:
    """Copy the selected pairs into the temporary table ``export_rows``, numbered from 0 in ``order``.

    The pairs are copied because an export takes hours, and an open query on the lake would block commits as long. The
    copy spills to disk, about 1.5 KB per pair. Pairs of one split stand together. Column ``sample_bytes`` is an upper
    bound of the size of a pair's tar sample: bytes, texts, three headers with padding.

    ``with_captions`` is SQL of `captions_of`, (sha256, captions), to add a column; '' for none. A mixture has the
    column ``origin``, the version of the pair.
    """
    origin = ", dataset || '@' || version AS origin" if selected.is_mixture else ""
    shown = text_columns.of_version(selected.n_texts, selected.optional_columns)
    pairs = f"(SELECT {shown}{origin} FROM pairs WHERE {selected.where})"
    if with_captions:
        joined = f"{pairs} p LEFT JOIN {with_captions} k USING (sha256)"
        pairs = f"(SELECT p.*, coalesce(k.captions, []) AS captions FROM {joined})"
    key = "image_id"
    if order.each_of:
        named = ", ".join(f"CASE WHEN length({name}) > 0 THEN {quoted(name)} END" for name in order.each_of)
        each = f"SELECT *, unnest(list_filter([{named}], x -> x IS NOT NULL)) AS text_column FROM {pairs}"
        pairs, key = f"(SELECT *, image_id || '-' || text_column AS sample FROM ({each}))", "sample"
    by, oldest = f"p.{key}", pairs
    if order.grows:
        dataset = selected.versions[0]
        since = f"dataset = {quoted(dataset.name)} AND version <= {dataset.version}"
        first = f"(SELECT sha256, min(version) AS first FROM pairs WHERE {since} GROUP BY sha256)"
        pairs = f"(SELECT p.* REPLACE (f.first AS version) FROM {pairs} p JOIN {first} f USING (sha256))"
        oldest = f"(SELECT * FROM {pairs} WHERE version = (SELECT min(version) FROM {pairs}))"
        by = f"p.sha256, {by}"
    if order.seed is not None:
        by = shuffle_order(order.seed, f"p.{key}")
    elif order.by_shard:
        by = f"c.shard, {by}"
    splits = splits_of(lake, selected)
    of_splits = [f"(SELECT * FROM {oldest} WHERE split = {quoted(name)})" for name in splits] or [oldest]
    first = [
        _typical_pairs(lake, each, selected, bool(with_captions), key) for each in of_splits if order.typical_first
    ]
    if typical := [row_id for found in first for row_id in found]:
        by = f"p.{key} NOT IN ({', '.join(map(quoted, typical))}), {by}"  # false sorts first
    by = f"p.version, {by}" if order.grows else f"p.split, {by}" if splits else by
    lake.execute(
        f"""CREATE OR REPLACE TEMP TABLE export_rows AS
        SELECT p.*, c.shard, c.format, row_number() OVER (ORDER BY {by}) - 1 AS n,
            coalesce(c.n_bytes, 0) + coalesce(strlen(p.text1), 0) + strlen(to_json(p)) + 4096 AS sample_bytes
        FROM {pairs} p LEFT JOIN image_content c ON c.sha256 = p.sha256 ORDER BY n"""
    )


def _typical_pairs(lake: Lake, pairs: str, selected: Selection, with_captions: bool, key: str) -> list[str]:
    """Return the ids of at most TYPED pairs that together have a value in every column, except columns without any.

    `datasets` takes a column's type from the first 5 samples of a tar. A column that is NULL in them and a text later
    stops it. A greedy cover by the distinct sets of known columns, of which there are few.

    ``pairs`` is SQL for rows of ``selected``; ``key`` is the column of their ids.
    """
    known = [
        f"len({name}) > 0" if kind.endswith("[]") else f"{name} IS NOT NULL"
        for name, kind in pair_columns(selected).items()
    ]
    if with_captions:
        known += [f"len(list_filter(captions, c -> c.{part} IS NOT NULL)) > 0" for part in ("text", "similarity")]
    bits = " + ".join(f"CASE WHEN {each} THEN {1 << n} ELSE 0 END" for n, each in enumerate(known))
    sets = lake.query(f"SELECT {bits} AS known, min({key}) FROM {pairs} GROUP BY ALL ORDER BY ALL")
    left, found = reduce(or_, (bits_of_set for bits_of_set, _ in sets), 0), []
    while left and len(found) < TYPED:
        bits_of_set, row_id = max(sets, key=lambda each: (each[0] & left).bit_count())
        left &= ~bits_of_set
        found.append(row_id)
    return found


def captions_by_version(lake: Lake, selected: Selection) -> str:
    """Return SQL for (sha256, captions) of the selected pictures: of each, those of its version's captioners."""
    own = (f"SELECT sha256 FROM pairs WHERE {each.where} AND {selected.where}" for each in selected.versions)
    both = zip((captions_of(lake, each) for each in selected.versions), own, strict=True)
    return f"({' UNION ALL '.join(f'SELECT * FROM {held} SEMI JOIN ({pairs}) USING (sha256)' for held, pairs in both)})"


def splits_of(lake: Lake, selected: Selection) -> list[str]:
    """Return the names of the selected pairs' splits in the order of their export; [] without splits."""
    if "split" not in selected.optional_columns:
        return []
    return [name for (name,) in lake.query(f"SELECT DISTINCT split FROM pairs WHERE {selected.where} ORDER BY split")]


def rows_of(lake: Lake, splits: Sequence[str]) -> list[int]:
    """Return the number of rows of `gather` by split, in the order of ``splits``."""
    found = dict(lake.query("SELECT split, count(*) FROM export_rows GROUP BY split"))
    return [found.get(name, 0) for name in splits]


def sizes(lake: Lake) -> np.ndarray:
    """Return the column ``sample_bytes`` of the rows of `gather`, in order: (n,) int64."""
    return lake.table("SELECT sample_bytes FROM export_rows ORDER BY n")["sample_bytes"].to_numpy().astype(np.int64)


def portion(lake: Lake, first: int, last: int) -> pa.Table:
    """Return the rows ``first`` to ``last`` - 1 of `gather`.

    The columns are those of ``pairs``, ``captions`` if added, ``shard`` and ``format``.
    """
    sql = "SELECT * EXCLUDE (n, sample_bytes) FROM export_rows WHERE n >= ? AND n < ? ORDER BY n"
    return lake.table(sql, (first, last))


def digest(lake: Lake, first: int, last: int) -> str:
    """Hash the rows ``first`` to ``last`` - 1 of `gather` to a decimal number as text."""
    rows = "SELECT * EXCLUDE (sample_bytes) FROM export_rows WHERE n >= ? AND n < ?"
    sql = f"SELECT bit_xor(md5_number(CAST(to_json(r) AS VARCHAR))) FROM ({rows}) r"
    return str(lake.query(sql, (first, last))[0][0] or 0)


def picture_paths(lake: Lake, shards: str = PICTURE_SHARDS) -> dict[str, tuple[str, ...]]:
    """Return, by shard, the files with the image bytes of the gathered rows; ``shards`` is a query of their shards."""
    return paths_by_shard(lake, "payloads", [shard for (shard,) in lake.query(shards)])


def release(lake: Lake) -> None:
    """Drop the temporary table ``export_rows`` that `gather` created."""
    lake.execute("DROP TABLE IF EXISTS temp.export_rows")


def of_version(lake: Lake, dataset: Dataset) -> list[tuple[str, str, int]]:
    """Return (place, format, number of rows of this version) of each recorded export that has pairs of a version."""
    sql = "SELECT uri, format, rows FROM exports WHERE dataset = ? AND version = ? ORDER BY ALL"
    return lake.query(sql, (dataset.name, dataset.version))


def with_pairs_of(lake: Lake, versions: Sequence[Dataset]) -> list[dict[str, str]]:
    """Return dataset, format and uri of exports with pairs of these versions; ``dataset`` names all of a mixture."""
    sql = """SELECT string_agg(dataset || '@' || version, ' ' ORDER BY "at") AS dataset, format, uri FROM exports
        GROUP BY uri, format HAVING list_has_any(list(dataset || '@' || version), ?) ORDER BY ALL"""
    return lake.rows(sql, ([str(each) for each in versions],))


def check_unamended(lake: Lake, selected: Selection) -> None:
    """Raise PairmillError if rows were removed from the versions since these were read: an export may hold them."""
    for dataset in selected.versions:
        now = find(lake, str(dataset))
        if (now.content_digest, now.amended, now.n_pairs) != (dataset.content_digest, dataset.amended, dataset.n_pairs):
            raise PairmillError(
                f"dataset '{dataset}' was amended while it was exported, so the files may hold what was taken down. "
                "Run the same export again; it writes them anew."
            )


def web_hosts(lake: Lake, selected: Selection) -> list[str]:
    """Return the addresses of the MOST web hosts with most selected pairs, such as `https://example.org`."""
    hosts = f"SELECT regexp_extract(raw_image_url, '^https?://[^/?#]+') AS host FROM pairs WHERE {selected.where}"
    most = f"SELECT host FROM ({hosts}) WHERE host <> '' GROUP BY host ORDER BY count(*) DESC, host LIMIT {MOST}"
    return [host for (host,) in lake.query(most)]


def licences(lake: Lake, selected: Selection) -> list[str]:
    """Return the MOST most frequent licences of the selected pairs: their column's, else those of their documents."""
    most = f"GROUP BY licence ORDER BY count(*) DESC, licence LIMIT {MOST}"
    if text_columns.RIGHTS[0] in selected.optional_columns:
        rows = f"SELECT licence FROM pairs WHERE {selected.where} AND licence <> '' {most}"
        return [licence for (licence,) in lake.query(rows)]
    named = [f"json_extract_string(coalesce(nullif(d.metadata, ''), '{{}}'), '{path}')" for path in _PATHS]
    pairs = f"SELECT document_id FROM pairs WHERE {selected.where}"
    documents = "SELECT document_id, min(metadata) AS metadata FROM documents GROUP BY document_id"
    found = f"SELECT coalesce({', '.join(named)}) AS licence FROM ({pairs}) p JOIN ({documents}) d USING (document_id)"
    return [licence for (licence,) in lake.query(f"SELECT licence FROM ({found}) WHERE licence <> '' {most}")]


def credits(lake: Lake, selected: Selection) -> Iterator[bytes]:
    """Yield the lines of a table of credits: id, credit, licence, its address and the picture's, between tabs."""
    names = ("image_id", "attribution", "licence", "licence_url", "raw_image_url")
    line = " || chr(9) || ".join(f"regexp_replace(coalesce({name}, ''), '\\s+', ' ', 'g')" for name in names)
    yield "\t".join(names).encode() + b"\n"
    known = f"{selected.where} AND coalesce(licence, attribution) IS NOT NULL"
    for lines in lake.blocks(f"SELECT {line} AS line FROM pairs WHERE {known} ORDER BY image_id", rows=100_000):
        yield "".join(f"{each}\n" for each in lines["line"].to_pylist()).encode()


def shuffle_order(seed: int, key: str) -> str:
    """Return the terms of an SQL ORDER BY that shuffles rows: by sha256 of ``seed`` and column ``key``, then by key.

    Hex digits compare as bytes: the order is the same on every machine, whatever its locale, threads or file order.
    """
    return f"sha256({quoted(f'{seed}/')} || {key}), {key}"


def by_shard(lake: Lake, first: int, last: int) -> Iterator[tuple[str, list[int], list[str]]]:
    """Yield (shard, row numbers, sha256s) for each shard of the rows ``first`` to ``last`` - 1 of `gather`.

    Memory holds the rows of one shard. DuckDB sorts the rows once, and spills if necessary.
    """
    wanted = f"SELECT coalesce(shard, '') AS shard, n, sha256 FROM export_rows WHERE n >= {first} AND n < {last}"
    lake.execute(f"CREATE OR REPLACE TEMP TABLE export_pass AS {wanted} ORDER BY shard, n")
    try:
        for (shard,) in lake.query("SELECT DISTINCT shard FROM export_pass ORDER BY shard"):
            rows = lake.table("SELECT n, sha256 FROM export_pass WHERE shard = ? ORDER BY n", (shard,))
            yield shard, rows["n"].to_pylist(), rows["sha256"].to_pylist()
    finally:
        lake.execute("DROP TABLE IF EXISTS temp.export_pass")


def kept_pictures(where: str) -> str:
    """Return SQL for the pairs that meet a condition, with reading order in the document and shard of the picture."""
    # A document that was read again has rows of both times, under the same ids.
    return f"""SELECT p.document_id, i.reading_order, p.image_id, p.sha256, p.raw_image_url, p.alt_text, p.caption,
        p.syn_text, p.width, p.height, c.shard, c.format, c.n_bytes FROM (SELECT * FROM pairs WHERE {where}) p JOIN
        (SELECT image_id, max(reading_order) AS reading_order FROM images GROUP BY image_id) i USING (image_id)
        LEFT JOIN image_content c ON c.sha256 = p.sha256"""


def gather_documents(lake: Lake, selected: Selection) -> None:
    """Copy the documents of the selected pairs, of one version, into the table ``export_rows``.

    A row has document_id, page (its released address), title, metadata and ``items``: structs in reading order, each a
    kept picture with its pair's columns, or ``text``, the sentences of one paragraph that pass the version's rules. A
    near copy of another sentence stays, because the text around it needs it. Rows are numbered from 0, in the order of
    the shards of their pictures. ``sample_bytes`` is an upper bound of a row's size.
    """
    dataset, ordered = selected.versions[0], kept_pictures(selected.where)
    lake.execute(f"CREATE OR REPLACE TEMP TABLE kept_pictures AS {ordered}")
    lake.execute("""CREATE OR REPLACE TEMP TABLE said_sentences AS SELECT document_id,
        max(reading_order) AS reading_order, min(position) AS position, any_value(text) AS text,
        any_value(content) AS content FROM sentences SEMI JOIN kept_pictures USING (document_id)
        GROUP BY document_id, sentence_id""")
    lake.execute("""CREATE OR REPLACE TEMP TABLE said_contents AS
        SELECT content, min(text) AS text, NULL::VARCHAR AS shard FROM said_sentences GROUP BY content""")
    lake.execute(_documents(sentence_rows(plan_of(lake, dataset), AFTER_ALL, dataset.commit, "said_contents")))
    for table in ("kept_pictures", "said_sentences", "said_contents"):
        lake.execute(f"DROP TABLE temp.{table}")


def _documents(passing: str) -> str:
    """Return the SQL statement that creates ``export_rows`` from gathered pictures and the sentences in ``passing``."""
    paragraphs = f"""SELECT document_id, reading_order, string_agg(text, ' ' ORDER BY position) AS text
        FROM said_sentences SEMI JOIN (SELECT content FROM ({passing}) WHERE dropped_by = '') USING (content)
        GROUP BY ALL"""
    each = f"(SELECT * FROM kept_pictures UNION ALL BY NAME {paragraphs})"
    item = ", ".join(
        f"{name} := {name}"
        for name in ("text", "image_id", "sha256", "raw_image_url", "alt_text", "caption", "syn_text", "width",
                     "height", "shard", "format")
    )  # fmt: skip
    texts = " + ".join(f"coalesce(strlen({name}), 0)" for name in ("text", "raw_image_url", "alt_text", "caption"))
    documents = f"""SELECT document_id, list(struct_pack({item}) ORDER BY reading_order) AS items, min(shard) AS shard,
        sum(coalesce(n_bytes, 0) + 3 * ({texts} + coalesce(strlen(syn_text), 0)) + 512) AS item_bytes
        FROM {each} GROUP BY document_id"""
    about = """SELECT document_id, min(title) AS title, min(metadata) AS metadata FROM documents
        SEMI JOIN kept_pictures USING (document_id) GROUP BY document_id"""
    return f"""CREATE OR REPLACE TEMP TABLE export_rows AS SELECT d.*, p.page, a.title, a.metadata,
        CAST(item_bytes + coalesce(strlen(a.metadata), 0) AS BIGINT) AS sample_bytes,
        row_number() OVER (ORDER BY d.shard, document_id) - 1 AS n
        FROM ({documents}) d LEFT JOIN ({released_pages("SELECT document_id FROM kept_pictures")}) p
        USING (document_id) LEFT JOIN ({about}) a USING (document_id) ORDER BY n"""
