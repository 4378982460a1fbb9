"""Find which source units are new, and give each distinct picture and sentence one home shard."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

import numpy as np
import pyarrow as pa

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending import superseded

# A listed file: uri, size, etag, and what its owner makes of it again (a format or a reason, a detail or None).
Row = tuple[str, int, str, str, str | None]
_LISTED = pa.schema(
    [("uri", pa.string()), ("size", pa.int64()), ("etag", pa.string()), ("kind", pa.string()), ("detail", pa.string())]
)
_AT_ONCE = 100_000


def list_units(lake: Lake, rows: Iterable[Row], readers: Mapping[str, str], first_readers: Mapping[str, str]) -> None:
    """Make the temporary table ``listed`` of a source's files in their order, and of what is new of them.

    New is what is not as it was when last read, with the commit of that (``before``, 0: never), and what another reader
    reads now: ``readers`` by format, ``first_readers`` those of what was read before readers were noted. The last
    reading counts: a unit that goes back to what it once was has changed. DuckDB spills the table where memory ends.
    """
    lake.execute("CREATE OR REPLACE TEMP TABLE seen (n BIGINT, uri VARCHAR, size BIGINT, etag VARCHAR, kind VARCHAR, "
                 "detail VARCHAR)")  # fmt: skip
    left, n = iter(rows), 0
    while some := list(islice(left, _AT_ONCE)):
        numbers = pa.array(np.arange(n, n + len(some)))
        columns = [pa.array(column, field.type) for column, field in zip(zip(*some, strict=True), _LISTED, strict=True)]
        lake.connection.register("batch", pa.table([numbers, *columns], ["n", *_LISTED.names]))
        lake.execute("INSERT INTO seen SELECT * FROM batch")
        lake.connection.unregister("batch")
        n += len(some)
    columns = [pa.array([each[name] for name in readers], pa.string()) for each in (readers, first_readers)]
    lake.connection.register("known", pa.table([pa.array(list(readers)), *columns], ["kind", "reader", "first"]))
    last = (
        "SELECT uri, arg_max((size, etag), commit) AS was, arg_max(coalesce(reader, ''), commit) AS reader, "
        "max(commit) AS commit FROM inputs GROUP BY uri"
    )
    # A file that is no document has a reason for a format, and so no reader.
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE listed AS SELECT s.*, i.was IS DISTINCT FROM (s.size, s.etag) AS is_changed, "
        "coalesce(nullif(i.reader, ''), k.first) AS reader_before, k.reader AS reader_now, "
        "is_changed OR coalesce(reader_before <> reader_now, false) AS is_new, coalesce(i.commit, 0) AS before "
        f"FROM seen s LEFT JOIN ({last}) i ON i.uri = s.uri LEFT JOIN known k ON k.kind = s.kind AND s.detail IS NULL "
        "ORDER BY n"
    )
    lake.connection.unregister("known")
    lake.execute("DROP TABLE seen")


def changed_readers(lake: Lake) -> list[tuple[str, str, int]]:
    """Count the listed units that are as they were and that another reads now: (who before, who now, units)."""
    changed = "SELECT reader_before, reader_now, count(*) FROM listed WHERE is_new AND NOT is_changed"
    return lake.query(f"{changed} GROUP BY ALL ORDER BY ALL")


def listed_sizes(lake: Lake) -> tuple[np.ndarray, np.ndarray]:
    """Return the size of every listed file, and whether it is new, in their order: int64 and bool."""
    found = lake.table("SELECT size, is_new FROM listed ORDER BY n")
    return found["size"].to_numpy(), found["is_new"].to_numpy()


def listed_rows(lake: Lake, numbers: np.ndarray) -> Iterator[tuple[Row, int]]:
    """Yield the listed files of these numbers in their order, each with the commit of its last reading."""
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
    """Count the requests to distant places that workers of a run made again while they read units."""
    mine = 'SELECT "commit" FROM commits WHERE run_id = ?'
    return lake.query(f"SELECT coalesce(sum(retries), 0) FROM inputs WHERE commit IN ({mine})", (run_id,))[0][0]


def vanished(lake: Lake, source: str) -> list[str]:
    """Return units of ``source`` that were read once and are not in ``listed``, sorted, and drop that table.

    Their rows stay. Parts of a file that is listed in other parts now are not among them: ``index``, which must follow
    on this connection, finds out what of theirs still counts.
    """
    file = "split_part(split_part(uri, '#row-group=', 1), '#bytes=', 1)"
    sql = (
        f"SELECT uri, {file} IN (SELECT {file} FROM listed WHERE etag <> 'ignored') AS is_part, arg_max(etag, commit) "
        "FROM inputs ANTI JOIN listed USING (uri) WHERE is_part OR source = ? GROUP BY ALL ORDER BY uri"
    )
    rows = lake.query(sql, (source,))
    lake.execute("DROP TABLE listed")
    superseded.note_lost_parts(lake, source, [uri for uri, is_part, last in rows if is_part and last != "lost"])
    return [uri for uri, is_part, _ in rows if not is_part]


def banned(lake: Lake) -> frozenset[str]:
    """Return the ids (32 hex digits of the sha256) of all banned pictures."""
    return frozenset(row[0] for row in lake.query("SELECT sha256 FROM bans"))


def index(lake: Lake, begin: Callable[[], int]) -> None:
    """Give each picture and sentence content that has none its home shard: the smallest shard id that holds it.

    One pass over ``images`` and ``sentences`` a run that read something new; a content that a later ingest brings
    again keeps its home. A copy of its bytes in another shard's payloads is never read, and costs its disk only.
    What was read again is compared first.
    """
    superseded.supersede(lake, begin)
    new = {table: lake.query(f"SELECT count(*) FROM ({_new(*keys)})")[0][0] for table, keys in _HOMES.items()}
    if not any(new.values()):
        return
    commit = begin()

    def body() -> None:
        for table, (source, key, columns) in _HOMES.items():
            rows = f"SELECT *, {commit} FROM ({_new(source, key, columns)}) ORDER BY {key}"
            lake.execute(f"INSERT INTO {table} ({key}, {columns}, shard, commit) {rows}")

    lake.retrying(body)


_HOMES = {
    "image_content": ("images", "sha256", "width, height, format, n_bytes"),
    "sentence_content": ("sentences", "content", "text"),
}


def _new(source: str, key: str, columns: str) -> str:
    home = "image_content" if source == "images" else "sentence_content"
    first = ", ".join(f"arg_min({name}, (shard, {_ORDER[source]})) AS {name}" for name in columns.split(", "))
    return f"SELECT {key}, {first}, min(shard) AS shard FROM {source} ANTI JOIN {home} USING ({key}) GROUP BY {key}"


_ORDER = {"images": "image_id", "sentences": "sentence_id"}
