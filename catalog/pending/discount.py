"""Subtract rows that a table has lost from `partitions`, so that the same work can be committed again."""

from pairmill.catalog.lake.lake import Lake

# Temporary table that the caller creates: (shard, scorer, n), the number of rows that each group has lost.
FORGOTTEN = "forgotten"


def discount(lake: Lake, table: str, label: str, commit: int) -> None:
    """Subtract the rows in FORGOTTEN from ``partitions``, within a transaction of the caller.

    The partitions of these groups get other ids, and those without a file any more lose their path. ``label`` makes the
    ids of the negative rows.
    """
    here = f"\"table\" = '{table}' AND (shard, scorer) IN (SELECT shard, scorer FROM {FORGOTTEN})"
    lake.execute(f"UPDATE partitions SET partition_id = partition_id || ':{commit}' WHERE {here}")
    # DuckLake removes files without remaining rows, so no worker may be given their paths.
    left = f"SELECT filename FROM {table} WHERE shard IN (SELECT shard FROM {FORGOTTEN})"
    lake.execute(f"UPDATE partitions SET path = '' WHERE {here} AND concat(?, path) NOT IN ({left})", (lake.data_path,))
    lake.execute(
        'INSERT INTO partitions BY NAME SELECT ? AS "table", md5(concat(?, shard, scorer)) AS partition_id, shard, '
        f"scorer, -n AS rows, 0 AS bytes, 0.0 AS seconds, '' AS run_id, ? AS \"commit\", '' AS path FROM {FORGOTTEN}",
        (table, label, commit),
    )
