"""Split the vector index into ranges of clusters; find its files, and the commit up to which each range is done."""

from dataclasses import dataclass
from itertools import pairwise

from pairmill.catalog.lake import snapshot
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.training import Trained

# Vectors per range: a worker that searches 125,000 vectors of 512 dimensions peaks at 1.3 GB, 0.5 GB of it torch.
RANGE, FEWEST_RANGES = 125_000, 8
# The largest index of which a worker holds all rows: some 16,000 vectors of 512 dimensions.
SMALL_BYTES = 16_000_000


def score_paths(lake: Lake, table: str, scorer: str, shards: list[str]) -> dict[str, tuple[str, ...]]:
    """Return, by shard, the files with one scorer's rows of ``table``, newest last.

    The order matters for an image that was scored again: an older file still holds its old row.
    """
    if not shards:
        return {}
    lake.check_files(table)
    found = lake.query(
        """SELECT shard, list(path ORDER BY "commit", path) FROM partitions
        WHERE "table" = ? AND scorer = ? AND path <> '' AND shard IN (SELECT unnest(?)) GROUP BY shard""",
        (table, scorer, shards),
    )
    return {shard: tuple(lake.data_path + path for path in paths) for shard, paths in found}


@dataclass(frozen=True)
class IndexFiles:
    """Files of one vector index, each sorted by cluster; ``is_small`` if all their rows fit in a worker's memory."""

    paths: tuple[str, ...]
    is_small: bool


def index_files(lake: Lake, scorer: str) -> IndexFiles:
    """Return the files that hold the vectors which ``scorer`` assigned to clusters."""
    lake.check_files("vector_index")
    found = lake.query(
        """SELECT path, bytes FROM partitions WHERE "table" = 'vector_index' AND scorer = ? AND path <> ''
        ORDER BY path""",
        (scorer,),
    )
    return IndexFiles(tuple(lake.data_path + path for path, _ in found), sum(n for _, n in found) <= SMALL_BYTES)


def indexed_files(lake: Lake) -> set[str]:
    """Return the files of all vector indices, relative to the data path."""
    return {path for (path,) in lake.query('SELECT path FROM partitions WHERE "table" = ?', ("vector_index",))}


def merged_paths(lake: Lake, table: str, scorer: str, shards: list[str]) -> dict[str, tuple[str, ...]]:
    """Return, by shard, the files that may hold rows of ``scorer``, for a table whose files `pairmill maintain` merges.

    A merged file may hold rows of any shard and scorer; rows that a removal deleted stay until it has rewritten the
    file.
    """
    lake.check_files(table)
    now = [file.data_file for file in snapshot.files(lake.query, (table,))]
    found = lake.query(
        'SELECT shard, scorer, path FROM partitions WHERE "table" = ? AND path IN (SELECT unnest(?::VARCHAR[]))',
        (table, now),
    )
    merged = sorted(set(now) - {path for _, _, path in found})
    paths = {shard: merged.copy() for shard in shards}
    for shard, by, path in found:
        if by == scorer and shard in paths:
            paths[shard].append(path)
    return {shard: tuple(lake.data_path + path for path in own) for shard, own in paths.items()}


def newest_paths(lake: Lake, table: str, scorer: str) -> tuple[str, ...]:
    """Return the files of a scorer's last commit to ``table``, whose commits are complete snapshots."""
    lake.check_files(table)
    found = lake.query(
        """SELECT path FROM partitions WHERE "table" = ? AND scorer = ? AND path <> '' QUALIFY "commit" = max("commit")
        OVER () ORDER BY path""",
        (table, scorer),
    )
    return tuple(lake.data_path + path for (path,) in found)


def ranges(model: Trained) -> list[tuple[int, int]]:
    """Split the clusters 0..k-1 into ranges (first, last), of about RANGE eligible rows each when they were trained.

    Depends on the centroids alone, so a finished range stays finished when rows arrive.
    """
    n = min(model.k, max(FEWEST_RANGES, -(-model.eligible // RANGE)))
    bounds = [model.k * i // n for i in range(n + 1)]
    return [(first, last - 1) for first, last in pairwise(bounds)]


def watermarks(lake: Lake, table: str, scorer: str) -> dict[str, int]:
    """Return range (as a shard name) -> number of the commit up to which the rows of this range have been compared."""
    found = lake.query(
        'SELECT shard, max("commit") FROM partitions WHERE "table" = ? AND scorer = ? GROUP BY shard', (table, scorer)
    )
    return dict(found)


def newest(lake: Lake, table: str, scorer: str) -> int:
    """Return the newest commit with rows of this scorer in ``table``, -1 if there is none."""
    return lake.query(
        'SELECT coalesce(max("commit"), -1) FROM partitions WHERE "table" = ? AND scorer = ?', (table, scorer)
    )[0][0]


def clusters_of(lake: Lake, scorer: str, contents: list[str]) -> dict[str, int]:
    """Return content -> cluster number by ``scorer``; contents without a cluster are left out."""
    sql = "SELECT key, cluster FROM clusters WHERE scorer = ? AND key IN (SELECT unnest(?::VARCHAR[]))"
    return dict(lake.query(sql, (scorer, contents)))
