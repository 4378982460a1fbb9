"""Split the vector index into ranges of clusters; find the commit up to which each range is done."""

from itertools import pairwise

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.training import Trained

# Vectors per range: a worker that searches 125,000 vectors of 512 dimensions peaks at 1.3 GB, 0.5 GB of it torch.
RANGE, FEWEST_RANGES = 125_000, 8


def ranges(model: Trained) -> list[tuple[int, int]]:
    """Split the clusters 0..k-1 into ranges (first, last), of about RANGE eligible rows each when they were trained.

    Depends on the centroids alone, so a finished range stays finished when rows arrive.
    """
    n = min(model.k, max(FEWEST_RANGES, -(-model.eligible // RANGE)))
    bounds = [model.k * i // n for i in range(n + 1)]
    return [(first, last - 1) for first, last in pairwise(bounds)]


def watermarks(lake: Lake, table: str, scorer: str) -> dict[str, int]:
    """Return range (as a shard name) -> number of the commit up to which the rows of this range have been compared."""
    sql = 'SELECT shard, max("commit") FROM partitions WHERE "table" = ? AND scorer = ? GROUP BY shard'
    return dict(lake.query(sql, (table, scorer)))


def newest(lake: Lake, table: str, scorer: str) -> int:
    """Return the newest commit with rows of this scorer in ``table``, -1 if there is none."""
    return lake.query(
        'SELECT coalesce(max("commit"), -1) FROM partitions WHERE "table" = ? AND scorer = ?', (table, scorer)
    )[0][0]


def clusters_of(lake: Lake, scorer: str, contents: list[str]) -> dict[str, int]:
    """Return content -> cluster number by ``scorer``; contents without a cluster are left out."""
    sql = "SELECT key, cluster FROM clusters WHERE scorer = ? AND key IN (SELECT unnest(?::VARCHAR[]))"
    return dict(lake.query(sql, (scorer, contents)))
