"""Read perceptual hashes and duplicate edges as arrays, and find candidates for near-equal sentences by MinHash.

Each band's 64 bits are reduced to as many leading bytes as separate unrelated sentences. Sentences with equal leading
bytes form a run, ordered by the whole band and the next one; each is compared with the WINDOW sentences after it. In a
longer run, members are linked to their neighbours in this order, which suffices for a group, but not for every pair.

In software manuals, two hardly related sentences (Jaccard up to 0.4) agree in 4 bytes once in 23,000 pairs and in 8
once in 16 million. With one more byte per tenfold number of sentences, each meets about one such sentence per band, up
to 100M. The 64 bits of the sketch reject most of them before their texts are read.

Cost: 50 CPU microseconds per sentence, including the comparison (growing with exponent 0.94 from 30,000 to 270,000).
DuckDB sorts AT_ONCE sentences at a time by a band, spilling, and streams them through numpy, 33 bytes each; their pairs
are held in memory, 32 bytes each. At 800M sentences this would be 16 bands x 8 passes over 40 GB, which was not run.
There, each sentence would meet some 50 unrelated ones in 8 bytes of a band (the manuals' rate), more than a window
holds. Then only copies that also agree in the next band's first byte are certain to be neighbours, so that in theory 90
% of the pairs at 0.8 are found, and 99.96 % of those at 0.9.
"""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import pairwise
from math import ceil, sqrt

import numpy as np
import pyarrow as pa

from pairmill.catalog.lake.lake import Lake

GROUPED_AT_ONCE = 100_000
KEY_BYTES = 16  # an item's id has 32 hex digits; in memory it is raw bytes
WINDOW = 16
FEWEST_BYTES, MOST_BYTES = 4, 8
AT_ONCE, BLOCK, PAIRS_AT_ONCE = 100_000_000, 1_000_000, 50_000
# (runs, sketches, is_new, window, furthest, known) -> indexes of the two ends of each pair.
NearInOrder = Callable[[np.ndarray, np.ndarray, np.ndarray, int, int, int], tuple[np.ndarray, np.ndarray]]


def hashes(lake: Lake, scorer: str) -> tuple[pa.ChunkedArray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Read the perceptual hashes of all images: (keys of 16 bytes, 64-bit hashes, commits, flat rows, their colours).

    ``flat`` is (m,) int64, the rows of flat images; their colours are uint8 (m, c). Rows are streamed into arrays: 36
    bytes an image, and 225 if it is flat (c is 192). Run no other statement on the lake meanwhile.
    """
    sql = """SELECT unhex(sha256) AS key, phash, "commit", unhex(flat_colours) AS colours FROM image_hash
        WHERE scorer = ? AND phash IS NOT NULL ORDER BY sha256"""
    keys, phashes, commits, flat, colours = (bytearray() for _ in range(5))
    width = n = 0
    for block in lake.blocks(sql, (scorer,), rows=GROUPED_AT_ONCE):
        keys += _values(block["key"], KEY_BYTES)
        phashes += block["phash"].to_numpy().astype(np.uint64).data
        commits += block["commit"].to_numpy().astype(np.int64).data
        flat += (n + np.flatnonzero(block["colours"].is_valid().to_numpy(zero_copy_only=False))).data
        found = block["colours"].drop_null()
        width = width or (len(found[0].as_py()) if len(found) else 0)
        colours += _values(found, width)
        n += block.num_rows
    of_flat = np.frombuffer(colours, np.uint8).reshape(-1, width) if width else np.empty((0, 0), np.uint8)
    stored = pa.Array.from_buffers(pa.binary(KEY_BYTES), n, [None, pa.py_buffer(keys)])
    numbers = np.frombuffer(phashes, np.uint64), np.frombuffer(commits, np.int64), np.frombuffer(flat, np.int64)
    return pa.chunked_array([stored]), *numbers, of_flat


def _values(binary: pa.Array, width: int) -> memoryview:
    """Return the bytes of values of ``width`` bytes each, none of them NULL. Raise ArrowInvalid on another width."""
    if not len(binary):
        return memoryview(b"")
    fixed = binary.cast(pa.binary(width))
    _, data = fixed.buffers()
    return memoryview(data)[fixed.offset * width : (fixed.offset + len(fixed)) * width]


def exist(lake: Lake, table: str, scorers: tuple[str, ...]) -> bool:
    """Return whether ``table`` has a duplicate edge of any of ``scorers``.

    False too if a finished comparison found none: it leaves a partition without rows.
    """
    sql = f"SELECT 1 FROM {table} WHERE scorer IN (SELECT unnest(?)) AND a IS NOT NULL LIMIT 1"
    return bool(lake.query(sql, (list(scorers),)))


def edges(
    lake: Lake, table: str, scorers: tuple[str, ...]
) -> tuple[pa.ChunkedArray, np.ndarray, np.ndarray, np.ndarray]:
    """Read all distinct edges of ``table`` as (sorted keys, left, right, looseness); left and right index the keys.

    Keys are 16 bytes each, as in `hashes`. Looseness makes edges of both kinds comparable, from 0 (equal) to 1 (at the
    threshold): the distance divided by the largest distance of its kind.
    """
    sql = f"""WITH e AS (SELECT a, b, min(distance / scale) AS looseness FROM (SELECT a, b, distance,
        greatest(max(distance) OVER (PARTITION BY kind), 1e-9) AS scale FROM {table}
        WHERE scorer IN (SELECT unnest(?)) AND a IS NOT NULL) GROUP BY a, b),
        k AS (SELECT key, row_number() OVER (ORDER BY key) - 1 AS n FROM
        (SELECT a AS key FROM e UNION SELECT b FROM e))
        SELECT x.n AS l, y.n AS r, looseness FROM e JOIN k x ON x.key = e.a JOIN k y ON y.key = e.b ORDER BY l, r"""
    rows = lake.table(sql, (list(scorers),))
    sql = f"""SELECT unhex(key) AS key FROM (
        SELECT a AS key FROM {table} WHERE scorer IN (SELECT unnest(?)) AND a IS NOT NULL
        UNION SELECT b FROM {table} WHERE scorer IN (SELECT unnest(?)) AND a IS NOT NULL) ORDER BY key"""
    keys = lake.table(sql, (list(scorers), list(scorers)))
    return keys["key"], rows["l"].to_numpy(), rows["r"].to_numpy(), rows["looseness"].to_numpy()


def by_cluster(lake: Lake, rows: pa.Table, scorer: str) -> Iterator[pa.Table]:
    """Yield ``rows`` (which have a column ``content``) sorted by their new column ``cluster``, NULL if unassigned.

    A search over a range of clusters reads that range's groups only. Run no other statement on the lake meanwhile.
    """
    lake.connection.register("grouped_rows", rows)
    try:
        sql = """SELECT g.*, c.cluster FROM grouped_rows g LEFT JOIN (SELECT key, cluster FROM clusters WHERE scorer
            = ?) c ON c.key = g.content ORDER BY c.cluster, g.content"""
        for block in lake.blocks(sql, (scorer,), rows=GROUPED_AT_ONCE):
            yield pa.Table.from_batches([block])
    finally:
        lake.connection.unregister("grouped_rows")


def groups_of(lake: Lake, scorer: str, contents: list[str]) -> dict[str, str]:
    """Return content -> group id, by the newest grouping; contents in no duplicate group are left out."""
    if not scorer:
        return {}
    sql = """SELECT content, group_id FROM sentence_groups WHERE scorer = ? AND commit =
        (SELECT max(commit) FROM sentence_groups WHERE scorer = ?) AND content IN (SELECT unnest(?::VARCHAR[]))"""
    return dict(lake.query(sql, (scorer, scorer, contents)))


def near_candidates(
    lake: Lake, scorer: str, done: int, jaccard: float, bands: int, near: NearInOrder
) -> Iterator[pa.RecordBatch]:
    """Yield batches of candidate pairs (a, b, left, right): two contents, a < b, and their texts; each pair once.

    At least one sentence of a pair is newer than the commit ``done``. ``near`` finds pairs in a block of sorted rows
    (`ops.whole.hamming`). Run no other statement on the lake meanwhile.
    """
    lake.execute("CREATE OR REPLACE TEMP TABLE near_pairs (a BLOB, b BLOB)")
    n = lake.query("SELECT count(*) FROM sentence_signature WHERE scorer = ?", (scorer,))[0][0]
    signatures = "sentence_signature"
    if n <= BLOCK:  # 160 bytes a sentence; without the lake's tables a pass costs 1 CPU ms, else 20
        signatures = "signatures_read"
        made = f"CREATE OR REPLACE TEMP TABLE {signatures} AS FROM sentence_signature WHERE scorer = ?"
        lake.execute(made, (scorer,))
    with lake.without_tables() if n <= BLOCK else nullcontext():
        for number in range(1, bands + 1):
            for first, last in _ranges(n):
                ordered = f"""SELECT unhex(content) AS key, band{number} AS band, sketch, "commit" > ? AS is_new
                    FROM {signatures} WHERE scorer = ? AND band{number} BETWEEN ?::UBIGINT AND ?::UBIGINT
                    ORDER BY band, band{number % bands + 1}, key"""
                rows = lake.blocks(ordered, (done, scorer, first, last), rows=BLOCK)
                if found := [*_pairs(rows, leading_bytes(n), furthest(jaccard), near)]:
                    lake.insert("near_pairs", pa.concat_tables(found))
    sql = """SELECT x.content AS a, y.content AS b, x.text AS left, y.text AS right FROM
        (SELECT DISTINCT least(a, b) AS a, greatest(a, b) AS b FROM near_pairs) p
        JOIN sentence_content x ON unhex(x.content) = p.a JOIN sentence_content y ON unhex(y.content) = p.b"""
    yield from lake.blocks(sql, rows=PAIRS_AT_ONCE)


def _ranges(n: int) -> list[tuple[int, int]]:
    """Split the values of a band into ranges (first, last) of about AT_ONCE of ``n`` sentences, never within a run."""
    parts = min(2**16, ceil(max(1, n) / AT_ONCE))
    bounds = [2**16 * part // parts << 48 for part in range(parts + 1)]
    return [(first, end - 1) for first, end in pairwise(bounds)]


def _pairs(rows: pa.RecordBatchReader, n_bytes: int, furthest: int, near: NearInOrder) -> Iterator[pa.Table]:
    """Yield the keys (a, b) of near pairs per block; each block includes the WINDOW rows before it."""
    before = rows.schema.empty_table()
    for block in rows:
        both = pa.concat_tables([before, pa.Table.from_batches([block])]).combine_chunks()
        runs = both["band"].to_numpy() >> np.uint64(64 - 8 * n_bytes)
        columns = both["sketch"].to_numpy(), both["is_new"].to_numpy()
        left, right = near(runs, *columns, WINDOW, furthest, before.num_rows)
        yield pa.table({"a": both["key"].take(pa.array(left)), "b": both["key"].take(pa.array(right))})
        before = both.slice(max(0, both.num_rows - WINDOW))


def leading_bytes(n: int) -> int:
    """Return how many leading bytes of a band must agree among ``n`` sentences: one more per tenfold number, 4 to 8."""
    return min(MOST_BYTES, max(FEWEST_BYTES, len(str(max(1, n))) - 1))


def furthest(jaccard: float) -> int:
    """Return the largest number of differing bits (of 64) of two sketches at ``jaccard``; misses one pair in 30,000.

    Four standard deviations above the mean, half of 1 - jaccard: differing minima have equal bits half the time.
    """
    differing = (1 - jaccard) / 2
    return ceil(64 * differing + 4 * sqrt(64 * differing * (1 - differing)))
