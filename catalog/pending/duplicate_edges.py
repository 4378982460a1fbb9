"""Read perceptual hashes and duplicate edges as arrays; arrange groups of sentences by cluster."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from pairmill.catalog.lake.lake import Lake

GROUPED_AT_ONCE = 100_000


def hashes(lake: Lake, scorer: str) -> tuple[pa.ChunkedArray, np.ndarray, np.ndarray]:
    """Read (keys, 64-bit hashes, commit numbers) of every picture that has a hash, in the order of keys.

    Keys are the 16 bytes that their 32 digits stand for: 36 bytes a picture in all, where Python's texts took 105.
    """
    rows = lake.table(
        'SELECT unhex(sha256) AS key, phash, "commit" FROM image_hash WHERE scorer = ? AND phash IS NOT NULL '
        "ORDER BY sha256",
        (scorer,),
    )
    return rows["key"], rows["phash"].to_numpy().astype(np.uint64, copy=False), rows["commit"].to_numpy()


def exist(lake: Lake, table: str, scorers: tuple[str, ...]) -> bool:
    """Return whether any edge of ``table`` is known: a comparison that found none leaves a partition without rows."""
    sql = f"SELECT 1 FROM {table} WHERE scorer IN (SELECT unnest(?)) AND a IS NOT NULL LIMIT 1"
    return bool(lake.query(sql, (list(scorers),)))


def edges(
    lake: Lake, table: str, scorers: tuple[str, ...]
) -> tuple[pa.ChunkedArray, np.ndarray, np.ndarray, np.ndarray]:
    """Read (keys in order, left, right, looseness) of every distinct edge of ``table``; left and right index
    ``keys``.

    Keys are 16 bytes each, as in `hashes`.

    Looseness orders edges of both kinds from 0 (equal) to 1 (at the threshold): the distance over the largest of its
    kind.
    """
    rows = lake.table(
        "WITH e AS (SELECT a, b, min(distance / scale) AS looseness FROM (SELECT a, b, distance, "
        f"greatest(max(distance) OVER (PARTITION BY kind), 1e-9) AS scale FROM {table} "
        "WHERE scorer IN (SELECT unnest(?)) AND a IS NOT NULL) GROUP BY a, b), "
        "k AS (SELECT key, row_number() OVER (ORDER BY key) - 1 AS n FROM "
        "(SELECT a AS key FROM e UNION SELECT b FROM e)) "
        "SELECT x.n AS l, y.n AS r, looseness FROM e JOIN k x ON x.key = e.a JOIN k y ON y.key = e.b ORDER BY l, r",
        (list(scorers),),
    )
    keys = lake.table(
        "SELECT unhex(key) AS key FROM ("
        f"SELECT a AS key FROM {table} WHERE scorer IN (SELECT unnest(?)) AND a IS NOT NULL "
        f"UNION SELECT b FROM {table} WHERE scorer IN (SELECT unnest(?)) AND a IS NOT NULL) ORDER BY key",
        (list(scorers), list(scorers)),
    )
    return keys["key"], rows["l"].to_numpy(), rows["r"].to_numpy(), rows["looseness"].to_numpy()


def by_cluster(lake: Lake, rows: pa.Table, scorer: str) -> Iterator[pa.Table]:
    """Yield ``rows`` (with ``content``) in the order of clusters with their ``cluster``, NULL for one without.

    So who searches a range of clusters reads the groups of these alone. Nothing else may be asked of the lake then.
    """
    lake.connection.register("grouped_rows", rows)
    try:
        sql = (
            "SELECT g.*, c.cluster FROM grouped_rows g LEFT JOIN (SELECT key, cluster FROM clusters WHERE scorer = ?) "
            "c ON c.key = g.content ORDER BY c.cluster, g.content"
        )
        for block in lake.blocks(sql, (scorer,), rows=GROUPED_AT_ONCE):
            yield pa.Table.from_batches([block])
    finally:
        lake.connection.unregister("grouped_rows")


def groups_of(lake: Lake, scorer: str, contents: list[str]) -> dict[str, str]:
    """Return the newest group's id of each of these sentences that is in one."""
    if not scorer:
        return {}
    sql = (
        "SELECT content, group_id FROM sentence_groups WHERE scorer = ? AND commit = "
        "(SELECT max(commit) FROM sentence_groups WHERE scorer = ?) AND content IN (SELECT unnest(?::VARCHAR[]))"
    )
    return dict(lake.query(sql, (scorer, scorer, contents)))
