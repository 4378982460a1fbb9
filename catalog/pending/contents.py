"""Find new source units, assign each distinct image and sentence to one home shard, and read what is banned."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.pending import superseded

if TYPE_CHECKING:  # 0.3 CPU s, which `why` saves: it asks for home shards alone
    import numpy as np
    import pyarrow as pa

# A listed file: uri, size, etag, kind (a format, or a reason for not reading the file), detail (of a reason, or None).
Row = tuple[str, int, str, str, str | None]
_LISTED = {"uri": "string", "size": "int64", "etag": "string", "kind": "string", "detail": "string"}
_AT_ONCE = 100_000


def list_units(lake: Lake, rows: Iterable[Row], readers: Mapping[str, str], first_readers: Mapping[str, str]) -> None:
    """Create the temporary table ``listed`` of a source's files in order, with flags for new and changed files.

    A file is new if it differs from its last reading, whose commit is ``before`` (0: never read), or if another reader
    now reads its format. Only the last reading counts: a unit that returns to an earlier state has changed. DuckDB
    spills the table if memory is insufficient.

    ``rows`` are the files of the source, ``readers`` the current reader of each format, and ``first_readers`` those of
    units read before readers were recorded.
    """
    import numpy as np
    import pyarrow as pa

    types = [pa.type_for_alias(name) for name in _LISTED.values()]
    lake.execute("CREATE OR REPLACE TEMP TABLE seen (n BIGINT, uri VARCHAR, size BIGINT, etag VARCHAR, kind VARCHAR, "
                 "detail VARCHAR)")  # fmt: skip
    left, n = iter(rows), 0
    while some := list(islice(left, _AT_ONCE)):
        numbers = pa.array(np.arange(n, n + len(some)))
        columns = [pa.array(column, kind) for column, kind in zip(zip(*some, strict=True), types, strict=True)]
        lake.insert("seen", pa.table([numbers, *columns], ["n", *_LISTED]))
        n += len(some)
    columns = [pa.array([each[name] for name in readers], pa.string()) for each in (readers, first_readers)]
    lake.connection.register("known", pa.table([pa.array(list(readers)), *columns], ["kind", "reader", "first"]))
    last = """SELECT uri, arg_max((size, etag), commit) AS was, arg_max(coalesce(reader, ''), commit) AS reader,
        max(commit) AS commit FROM inputs GROUP BY uri"""
    # A file that is not a document has a reason instead of a format, and so no reader.
    lake.execute(f"""CREATE OR REPLACE TEMP TABLE listed AS SELECT s.*, i.was
        IS DISTINCT FROM (s.size, s.etag) AS is_changed, coalesce(nullif(i.reader, ''), k.first) AS reader_before,
        k.reader AS reader_now, is_changed OR coalesce(reader_before <> reader_now, false) AS is_new,
        coalesce(i.commit, 0) AS before FROM seen s LEFT JOIN ({last}) i ON i.uri = s.uri LEFT JOIN known k ON k.kind
        = s.kind AND s.detail IS NULL ORDER BY n""")
    lake.connection.unregister("known")
    lake.execute("DROP TABLE seen")


def draw_units(lake: Lake, source: str, seed: str, most: int) -> tuple[int, list[tuple[str, int]]]:
    """Draw new units of ``listed`` at random; return (number of new units, [(uri, bytes)] of the first ``most`` drawn).

    Each prefix of the result is a random sample without replacement in which each format has its share: a format's
    units are ranked by sha256(address || seed), and the formats merged in proportion to their numbers. Addresses are
    relative to that of the ``source``, so that the same files in another folder give the same sample.
    """
    new = "SELECT uri, size, kind FROM listed WHERE is_new AND detail IS NULL"
    n = lake.query(f"SELECT count(*) FROM ({new})")[0][0]
    drawn = "sha256(if(starts_with(uri, ?), substr(uri, length(?) + 1), uri) || ?)"
    place = f"(row_number() OVER (PARTITION BY kind ORDER BY {drawn}) - 0.5) / count(*) OVER (PARTITION BY kind)"
    asked = (source, source, seed, most)
    return n, lake.query(f"SELECT uri, size FROM ({new}) ORDER BY {place}, uri LIMIT ?", asked)


def count_listed(lake: Lake) -> dict[str, int]:
    """Return format -> number of its units in ``listed``."""
    counted = "SELECT kind, count(*) FROM listed WHERE detail IS NULL GROUP BY kind ORDER BY 2 DESC, 1"
    return dict(lake.query(counted))


def changed_readers(lake: Lake) -> list[tuple[str, str, int]]:
    """Count the unchanged listed units whose reader has changed: (reader before, reader now, units)."""
    changed = "SELECT reader_before, reader_now, count(*) FROM listed WHERE is_new AND NOT is_changed"
    return lake.query(f"{changed} GROUP BY ALL ORDER BY ALL")


def listed_sizes(lake: Lake) -> "tuple[np.ndarray, np.ndarray]":
    """Return (sizes, is new) of the files in ``listed``, in order: int64 bytes and bool arrays of shape (n,)."""
    found = lake.table("SELECT size, is_new FROM listed ORDER BY n")
    return found["size"].to_numpy(), found["is_new"].to_numpy()


def listed_rows(lake: Lake, numbers: "np.ndarray") -> Iterator[tuple[Row, int]]:
    """Yield (row, commit of its last reading) for the rows of ``listed`` with these numbers, in this order."""
    import numpy as np
    import pyarrow as pa

    if not len(numbers):
        return iter(())
    lake.connection.register("wanted", pa.table({"n": numbers, "rank": np.arange(len(numbers))}))
    span = f"n BETWEEN {numbers.min()} AND {numbers.max()}"
    sql = f"SELECT uri, size, etag, kind, detail, before FROM listed JOIN wanted USING (n) WHERE {span} ORDER BY rank"
    try:
        found = lake.query(sql)
    finally:
        lake.connection.unregister("wanted")
    return ((row[:5], row[5]) for row in found)


def retries(lake: Lake, run_id: str) -> int:
    """Return how many requests to remote storage the workers of a run retried while reading units."""
    mine = 'SELECT "commit" FROM commits WHERE run_id = ?'
    return lake.query(f"SELECT coalesce(sum(retries), 0) FROM inputs WHERE commit IN ({mine})", (run_id,))[0][0]


def list_vanished(lake: Lake, source: str) -> list[str]:
    """Return the units of ``source`` that were read before and are not listed now, sorted; drop table ``listed``.

    Rows of these units stay in the lake; `index` must follow, for parts of a file that is split differently now.
    """
    file = "split_part(split_part(uri, '#row-group=', 1), '#bytes=', 1)"
    sql = f"""SELECT uri, {file} IN (SELECT {file} FROM listed WHERE etag <> 'ignored') AS is_part,
        arg_max(etag, commit) FROM inputs ANTI JOIN listed USING (uri) WHERE is_part OR source = ? GROUP BY ALL
        ORDER BY uri"""
    rows = lake.query(sql, (source,))
    lake.execute("DROP TABLE listed")
    superseded.note_lost_parts(lake, source, [uri for uri, is_part, last in rows if is_part and last != "lost"])
    return [uri for uri, is_part, _ in rows if not is_part]


def index(lake: Lake, begin: Callable[[], int]) -> None:
    """Assign a home shard to each new image and sentence content: the smallest shard id that contains it.

    One pass over ``images`` and ``sentences`` per run that read something new; units that were read again are compared
    first (`supersede`). Copies of its bytes in other shards' payloads are never read.
    """
    superseded.supersede(lake, begin)
    if not any(lake.query(f"SELECT count(*) FROM ({_new(table)})")[0][0] for table in HOMES):
        return
    commit = begin()

    def body() -> None:
        for table, (_, key, _, columns) in HOMES.items():
            rows = f"SELECT *, {commit} FROM ({_new(table)}) ORDER BY {key}"
            lake.execute(f"INSERT INTO {table} ({key}, {columns}, shard, commit) {rows}")

    lake.retrying(body)


def homes_of_images(lake: Lake, image_ids: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return image id -> (sha256, home shard) of the given images."""
    homes = "SELECT image_id, sha256, c.shard FROM images JOIN image_content c USING (sha256)"
    rows = lake.query(f"{homes} WHERE image_id IN (SELECT unnest(?))", (list(image_ids),))
    return {image_id: (sha256, shard) for image_id, sha256, shard in rows}


def home_of(lake: Lake, sha256: str) -> str:
    """Return the home shard of a picture by its sha256, '' if the lake lacks the picture.

    Before `index` has assigned a home, return the smallest shard that has the picture.
    """
    rows = lake.query("SELECT shard FROM image_content WHERE sha256 = ?", (sha256,))
    return (rows or lake.query("SELECT min(shard) FROM images WHERE sha256 = ?", (sha256,)))[0][0] or ""


# Table of contents -> its source, key, id of an occurrence, and the columns to copy of the first occurrence.
HOMES = {
    "image_content": ("images", "sha256", "image_id", "width, height, format, n_bytes"),
    "sentence_content": ("sentences", "content", "sentence_id", "text"),
}


def first_occurrence(home: str) -> str:
    """Return SQL (aggregates) for the other columns of home table ``home``, from a content's first occurrence."""
    *_, occurrence, columns = HOMES[home]
    return ", ".join(f"arg_min({name}, (shard, {occurrence})) AS {name}" for name in columns.split(", "))


def _new(home: str) -> str:
    """Return SQL for the contents that the table ``home`` lacks, with their columns and smallest shard."""
    source, key, *_ = HOMES[home]
    columns = f"{key}, {first_occurrence(home)}, min(shard) AS shard"
    return f"SELECT {columns} FROM {source} ANTI JOIN {home} USING ({key}) GROUP BY {key}"


def bans(lake: Lake) -> Mapping[str, frozenset[str]]:
    """Return the banned values by kind: 'picture' and 'document' (ids), 'uri', 'address', 'md5', 'pdq', 'phash'.

    Every worker holds them in memory, 100 bytes each: a million is a sensible upper limit.
    """
    sql = "SELECT 'picture' AS kind, sha256 AS value FROM bans UNION ALL SELECT kind, value FROM taken_bans"
    found: dict[str, set[str]] = defaultdict(set)
    for kind, value in lake.query(sql):
        found[kind].add(value)
    return defaultdict(frozenset, {kind: frozenset(values) for kind, values in found.items()})


def referenced_by_run(run_id: str) -> str:
    """Return the SQL condition on ``payloads`` p for images that a run ingested by reference, without their bytes."""
    return f'p.bytes IS NULL AND p."commit" IN (SELECT "commit" FROM commits WHERE run_id = {quoted(run_id)})'


def found_missing() -> str:
    """Return the SQL condition on ``payloads`` for images that a stage after ingest could not find."""
    return "sha256 IN (SELECT item FROM quarantine WHERE reason = 'missing' AND stage NOT IN ('ingest', 'fetch'))"


def locations_elsewhere(lake: Lake, among: str) -> "Iterator[tuple[str, pa.Table]]":
    """Yield (home shard, rows for its ``payloads``) for images that other shards contain too: each location once.

    ``among`` is `referenced_by_run` or `found_missing`. Scoring an image tries its home shard's locations only.
    """
    seen = "FROM payloads p JOIN image_content c USING (sha256) WHERE p.shard <> c.shard AND "
    for (home,) in lake.query(f"SELECT DISTINCT c.shard {seen} {among} ORDER BY ALL"):
        yield (
            home,
            lake.table(
                f'SELECT sha256, p.bytes, p.uri, p."offset", p.length {seen} c.shard = {quoted(home)} AND {among} '
                'QUALIFY row_number() OVER (PARTITION BY sha256, p.uri, p."offset" ORDER BY p.shard) = 1 ORDER BY ALL'
            ),
        )
