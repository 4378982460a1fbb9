"""Read perceptual hashes and duplicate edges as arrays."""

import numpy as np
import pyarrow as pa

from catalog.lake.lake import Lake


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


def exist(lake: Lake, scorers: tuple[str, ...]) -> bool:
    """Return whether any edge is known: a comparison that found none leaves a partition without rows."""
    sql = "SELECT 1 FROM duplicate_edges WHERE scorer IN (SELECT unnest(?)) AND a IS NOT NULL LIMIT 1"
    return bool(lake.query(sql, (list(scorers),)))


def edges(lake: Lake, scorers: tuple[str, ...]) -> tuple[pa.ChunkedArray, np.ndarray, np.ndarray, np.ndarray]:
    """Read (keys in order, left, right, looseness) of every distinct edge; left and right index ``keys``.

    Keys are 16 bytes a picture, as in `hashes`.

    Looseness orders edges of both kinds from 0 (equal) to 1 (at the threshold): the distance over the largest of its
    kind.
    """
    rows = lake.table(
        "WITH e AS (SELECT a, b, min(distance / scale) AS looseness FROM (SELECT a, b, distance, "
        "greatest(max(distance) OVER (PARTITION BY kind), 1e-9) AS scale FROM duplicate_edges "
        "WHERE scorer IN (SELECT unnest(?)) AND a IS NOT NULL) GROUP BY a, b), "
        "k AS (SELECT key, row_number() OVER (ORDER BY key) - 1 AS n FROM "
        "(SELECT a AS key FROM e UNION SELECT b FROM e)) "
        "SELECT x.n AS l, y.n AS r, looseness FROM e JOIN k x ON x.key = e.a JOIN k y ON y.key = e.b ORDER BY l, r",
        (list(scorers),),
    )
    keys = lake.table(
        "SELECT unhex(key) AS key FROM ("
        "SELECT a AS key FROM duplicate_edges WHERE scorer IN (SELECT unnest(?)) AND a IS NOT NULL "
        "UNION SELECT b FROM duplicate_edges WHERE scorer IN (SELECT unnest(?)) AND a IS NOT NULL) ORDER BY key",
        (list(scorers), list(scorers)),
    )
    return keys["key"], rows["l"].to_numpy(), rows["r"].to_numpy(), rows["looseness"].to_numpy()
