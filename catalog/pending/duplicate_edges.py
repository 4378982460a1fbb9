"""Read perceptual hashes and duplicate edges as arrays, and sort groups of sentences by cluster."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from pairmill.catalog.lake.lake import Lake

GROUPED_AT_ONCE = 100_000


def hashes(lake: Lake, scorer: str) -> tuple[pa.ChunkedArray, np.ndarray, np.ndarray]:
    """Read (keys, 64-bit hashes, commit numbers) of every image that has a hash, sorted by key.

    Keys are binary, 16 bytes for the 32 hex digits: 36 bytes per image in total, against 105 with Python strings.
    """
    rows = lake.table(
        'SELECT unhex(sha256) AS key, phash, "commit" FROM image_hash WHERE scorer = ? AND phash IS NOT NULL '
        "ORDER BY sha256",
        (scorer,),
    )
    return rows["key"], rows["phash"].to_numpy().astype(np.uint64, copy=False), rows["commit"].to_numpy()


def exist(lake: Lake, table: str, scorers: tuple[str, ...]) -> bool:
    """Return whether ``table`` has any edge of these scorers.

    A comparison that found no edge leaves a partition without rows.
    """
    sql = f"SELECT 1 FROM {table} WHERE scorer IN (SELECT unnest(?)) AND a IS NOT NULL LIMIT 1"
    return bool(lake.query(sql, (list(scorers),)))


def edges(
    lake: Lake, table: str, scorers: tuple[str, ...]
) -> tuple[pa.ChunkedArray, np.ndarray, np.ndarray, np.ndarray]:
    """Read (sorted keys, left, right, looseness) of every distinct edge of ``table``; left and right index ``keys``.

    Keys are 16 bytes each, as in `hashes`. Looseness makes edges of both kinds comparable, from 0 (equal) to 1 (at the
    threshold): the distance divided by the largest distance of its kind.
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
    """Yield ``rows`` (with a column ``content``) sorted by cluster, with a column ``cluster``, NULL if unassigned.

    A search over a range of clusters then reads only the groups of that range. Run no other statement on the lake
    meanwhile.
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
    """Return content -> group id in the newest grouping, for those of these sentences that are in a group."""
    if not scorer:
        return {}
    sql = (
        "SELECT content, group_id FROM sentence_groups WHERE scorer = ? AND commit = "
        "(SELECT max(commit) FROM sentence_groups WHERE scorer = ?) AND content IN (SELECT unnest(?::VARCHAR[]))"
    )
    return dict(lake.query(sql, (scorer, scorer, contents)))
