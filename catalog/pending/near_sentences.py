"""Find pairs of sentences whose signatures agree in a band: candidates for near-equal strings, in SQL that spills.

Each band's 64 bits are cut to as many leading bytes as keep unrelated sentences apart, and sentences with equal ones
stand in a run, ordered by the whole band: each is compared with the WINDOW after it. A run of more has its members
joined to their neighbours in this order, which is enough for a group, not for every pair of it.

In software manuals two sentences that have little to do with each other (Jaccard up to 0.4) agree in 4 bytes once in
23,000 pairs and in 8 once in 16 million: with one byte more for ten times the sentences, each meets about one such in a
band, up to 100M. The 64 bits of the sketch turn most of them away before their texts are read.

What it takes: a band is 8 bytes a sentence, read, grouped and sorted one after another: memory is DuckDB's limit, the
rest goes to its temporary folder, for 800M sentences some 30 GB at a time. There an unrelated pair in 8 bytes would be
met about 50 times a sentence and band (that rate, at 800M), so that a window is full of them: near copies would be
missed there. It stops at some 300M sentences; beyond, a band needs more than eight bytes.
"""

from collections.abc import Iterator
from math import ceil, sqrt

import pyarrow as pa

from catalog.lake.lake import Lake

WINDOW = 16
FEWEST_BYTES, MOST_BYTES = 4, 8
PAIRS_AT_ONCE = 50_000


def candidates(lake: Lake, scorer: str, done: int, jaccard: float, bands: int) -> Iterator[pa.RecordBatch]:
    """Yield (a, b, left, right) of each pair once: contents, a < b, and their texts; one of them came after ``done``.

    Nothing else may be asked of the lake meanwhile.
    """
    lake.execute("CREATE OR REPLACE TEMP TABLE near_pairs (a UUID, b UUID)")
    n = lake.query("SELECT count(*) FROM sentence_signature WHERE scorer = ?", (scorer,))[0][0]
    for number in range(1, bands + 1):
        lake.execute(f"INSERT INTO near_pairs {_of_band(f'band{number}', scorer, done, n, jaccard)}")
    yield from lake.blocks(
        "SELECT x.content AS a, y.content AS b, x.text AS left, y.text AS right FROM (SELECT DISTINCT a, b FROM "
        "near_pairs) p JOIN sentence_content x ON CAST(x.content AS UUID) = p.a "
        "JOIN sentence_content y ON CAST(y.content AS UUID) = p.b",
        rows=PAIRS_AT_ONCE,
    )


def leading_bytes(n: int) -> int:
    """Return how many bytes of a band must agree among ``n`` sentences: one more for ten times as many."""
    return min(MOST_BYTES, max(FEWEST_BYTES, len(str(max(1, n))) - 1))


def furthest(jaccard: float) -> int:
    """Return in how many bits of 64 the sketches of two sentences at ``jaccard`` may differ, but for one pair in some
    30,000: four standard deviations more than half of 1 - jaccard. Two differing minima have equal bits half the time.
    """
    differing = (1 - jaccard) / 2
    return ceil(64 * differing + 4 * sqrt(64 * differing * (1 - differing)))


def _of_band(band: str, scorer: str, done: int, n: int, jaccard: float) -> str:
    """SQL of the pairs (a, b) whose sketches are near and which stand near each other in the order of one band."""
    signed = (
        f"SELECT CAST(content AS UUID) AS key, {band} AS band, {band} >> {64 - 8 * leading_bytes(n)} AS run, sketch, "
        f"\"commit\" > {done} AS is_new FROM sentence_signature WHERE scorer = '{scorer}'"
    )
    after = (
        "list({'key': key, 'sketch': sketch, 'is_new': is_new}) OVER "
        f"(PARTITION BY run ORDER BY band, key ROWS BETWEEN 1 FOLLOWING AND {WINDOW} FOLLOWING)"
    )
    return (
        f"WITH signed AS ({signed}), "
        "runs AS (SELECT run FROM signed GROUP BY run HAVING count(*) > 1 AND bool_or(is_new)), "
        f"near AS (SELECT key, sketch, is_new, {after} AS others FROM signed SEMI JOIN runs USING (run)) "
        "SELECT least(key, o.key), greatest(key, o.key) FROM "
        "(SELECT key, sketch, is_new, unnest(others) AS o FROM near) "
        f"WHERE (is_new OR o.is_new) AND bit_count(xor(sketch, o.sketch)) <= {furthest(jaccard)}"
    )
