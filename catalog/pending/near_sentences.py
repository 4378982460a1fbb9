"""Find pairs of sentences whose signatures agree in a band: candidates for near-equal strings.

Each band's 64 bits are cut to as many leading bytes as keep unrelated sentences apart, and sentences with equal ones
stand in a run, ordered by the whole band and the next one: each is compared with the WINDOW after it. A run of more has
its members joined to their neighbours in this order, which is enough for a group, not for every pair of it.

In software manuals two sentences that have little to do with each other (Jaccard up to 0.4) agree in 4 bytes once in
23,000 pairs and in 8 once in 16 million: with one byte more for ten times the sentences, each meets about one such in a
band, up to 100M. The 64 bits of the sketch turn most of them away before their texts are read.

What it takes: 50 CPU microseconds a sentence, their comparison included (growing by 0.94 from 30,000 to 270,000).
AT_ONCE sentences at a time are sorted by a band in DuckDB, which spills, and streamed through numpy, 33 bytes each;
their pairs are held, 32 bytes each. At 800M sentences that is 16 bands x 8 passes over 40 GB, which was not run. There
each would meet some 50 unrelated ones in 8 bytes of a band (the manuals' rate), more than a window holds: only copies
that agree in the next band's first byte too stand side by side for certain, so that by theory 90 % of the pairs at 0.8
are found, and 99.96 % of those at 0.9.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from math import ceil, sqrt

import numpy as np
import pyarrow as pa

from pairmill.catalog.lake.lake import Lake

WINDOW = 16
FEWEST_BYTES, MOST_BYTES = 4, 8
AT_ONCE, BLOCK, PAIRS_AT_ONCE = 100_000_000, 1_000_000, 50_000
# (runs, sketches, is_new, window, furthest, known) -> places of the two ends of pairs.
NearInOrder = Callable[[np.ndarray, np.ndarray, np.ndarray, int, int, int], tuple[np.ndarray, np.ndarray]]


def candidates(
    lake: Lake, scorer: str, done: int, jaccard: float, bands: int, near: NearInOrder
) -> Iterator[pa.RecordBatch]:
    """Yield (a, b, left, right) of each pair once: contents, a < b, and their texts; one of them came after ``done``.

    ``near`` finds pairs in a block of rows in order (`ops.whole.neighbours`). Nothing else may be asked of the lake
    meanwhile.
    """
    lake.execute("CREATE OR REPLACE TEMP TABLE near_pairs (a BLOB, b BLOB)")
    n = lake.query("SELECT count(*) FROM sentence_signature WHERE scorer = ?", (scorer,))[0][0]
    for number in range(1, bands + 1):
        for first, last in _ranges(n):
            ordered = (
                f'SELECT unhex(content) AS key, band{number} AS band, sketch, "commit" > ? AS is_new '
                f"FROM sentence_signature WHERE scorer = ? AND band{number} BETWEEN ?::UBIGINT AND ?::UBIGINT "
                f"ORDER BY band, band{number % bands + 1}, key"
            )
            rows = lake.blocks(ordered, (done, scorer, first, last), rows=BLOCK)
            found = [*_pairs(rows, leading_bytes(n), furthest(jaccard), near)]
            if found:
                _keep(lake, pa.concat_tables(found))
    yield from lake.blocks(
        "SELECT x.content AS a, y.content AS b, x.text AS left, y.text AS right FROM "
        "(SELECT DISTINCT least(a, b) AS a, greatest(a, b) AS b FROM near_pairs) p "
        "JOIN sentence_content x ON unhex(x.content) = p.a JOIN sentence_content y ON unhex(y.content) = p.b",
        rows=PAIRS_AT_ONCE,
    )


def _ranges(n: int) -> list[tuple[int, int]]:
    """Cut the values of a band into ranges (first, last) of about AT_ONCE of ``n`` sentences, at no run's middle."""
    parts = min(2**16, ceil(max(1, n) / AT_ONCE))
    bounds = [2**16 * part // parts << 48 for part in range(parts + 1)]
    return [(first, end - 1) for first, end in pairwise(bounds)]


def _pairs(rows: pa.RecordBatchReader, n_bytes: int, furthest: int, near: NearInOrder) -> Iterator[pa.Table]:
    """Yield the keys of near pairs, (a, b), block by block; each block is seen with the WINDOW rows before it."""
    before = rows.schema.empty_table()
    for block in rows:
        both = pa.concat_tables([before, pa.Table.from_batches([block])]).combine_chunks()
        runs = both["band"].to_numpy() >> np.uint64(64 - 8 * n_bytes)
        columns = both["sketch"].to_numpy(), both["is_new"].to_numpy()
        left, right = near(runs, *columns, WINDOW, furthest, before.num_rows)
        yield pa.table({"a": both["key"].take(pa.array(left)), "b": both["key"].take(pa.array(right))})
        before = both.slice(max(0, both.num_rows - WINDOW))


def _keep(lake: Lake, pairs: pa.Table) -> None:
    lake.connection.register("found_pairs", pairs)
    try:
        lake.execute("INSERT INTO near_pairs FROM found_pairs")
    finally:
        lake.connection.unregister("found_pairs")


def leading_bytes(n: int) -> int:
    """Return how many bytes of a band must agree among ``n`` sentences: one more for ten times as many."""
    return min(MOST_BYTES, max(FEWEST_BYTES, len(str(max(1, n))) - 1))


def furthest(jaccard: float) -> int:
    """Return in how many bits of 64 the sketches of two sentences at ``jaccard`` may differ, but for one pair in some
    30,000: four standard deviations more than half of 1 - jaccard. Two differing minima have equal bits half the time.
    """
    differing = (1 - jaccard) / 2
    return ceil(64 * differing + 4 * sqrt(64 * differing * (1 - differing)))
