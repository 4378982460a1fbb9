"""Find which source units are new, and give each distinct picture and sentence one home shard."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from catalog.lake.lake import Lake
from catalog.pending import superseded

Unit = tuple[str, int, str]


def unknown_inputs(
    lake: Lake, listed: Sequence[Unit], readers: Sequence[str], older: Mapping[str, str]
) -> tuple[dict[Unit, int], Counter[tuple[str, str]]]:
    """Find (uri, size, etag) rows that are not as they were when last read, with the commit of that (0: never).

    The last reading counts: a unit that goes back to what it once was has changed. One that is as it was is found too
    when another of ``readers`` (one a row) reads it now: such are also counted, by the reader before and the one now.
    ``older``: who read what was read before readers were noted, by who reads it now.
    """
    if not listed:
        return {}, Counter()
    uris, sizes, etags = zip(*listed, strict=True)
    before = [older.get(reader, reader) for reader in readers]
    rows = {"uri": uris, "size": sizes, "etag": etags, "reader": readers, "older": before}
    lake.connection.register("listed", pa.table(rows))
    last = (
        "SELECT uri, arg_max((size, etag), commit) AS was, arg_max(coalesce(reader, ''), commit) AS reader, "
        "max(commit) AS commit FROM inputs GROUP BY uri"
    )
    sql = (
        "SELECT l.uri, l.size, l.etag, coalesce(i.commit, 0), i.was IS NOT DISTINCT FROM (l.size, l.etag) AS same, "
        f"coalesce(nullif(i.reader, ''), l.older) AS before, l.reader FROM listed l LEFT JOIN ({last}) i "
        "ON i.uri = l.uri WHERE NOT same OR before <> l.reader"
    )
    try:
        found = lake.query(sql)
    finally:
        lake.connection.unregister("listed")
    return {row[:3]: row[3] for row in found}, Counter((was, now) for *_, same, was, now in found if same)


def retries(lake: Lake, run_id: str) -> int:
    """Count the requests to distant places that workers of a run made again while they read units."""
    mine = 'SELECT "commit" FROM commits WHERE run_id = ?'
    return lake.query(f"SELECT coalesce(sum(retries), 0) FROM inputs WHERE commit IN ({mine})", (run_id,))[0][0]


def vanished(lake: Lake, source: str, listed: Sequence[Unit]) -> list[str]:
    """Return units of ``source`` that were read once and are no longer listed, sorted. Their rows stay.

    Parts of a file that is listed in other parts now are not among them: ``index``, which must follow on this
    connection, finds out what of theirs still counts.
    """
    columns = {"uri": [row[0] for row in listed], "etag": [row[2] for row in listed]}
    lake.connection.register("listed", pa.table(columns))
    file = "split_part(split_part(uri, '#row-group=', 1), '#bytes=', 1)"
    sql = (
        f"SELECT uri, {file} IN (SELECT {file} FROM listed WHERE etag <> 'ignored') AS is_part, arg_max(etag, commit) "
        "FROM inputs ANTI JOIN listed USING (uri) WHERE is_part OR source = ? GROUP BY ALL ORDER BY uri"
    )
    try:
        rows = lake.query(sql, (source,))
    finally:
        lake.connection.unregister("listed")
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
