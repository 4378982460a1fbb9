"""List vectors that are not yet assigned to a cluster."""

import hashlib
from collections.abc import Iterator, Sequence

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.index_ranges import score_paths
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.training import Kind
from pairmill.catalog.pending.worklist import rounds
from pairmill.catalog.recipe.plan import Plan

# Vectors per work item: 131,072 of 1,024 dimensions take 1.3 GB in the worker. A smaller lake is split into 64 items.
ASSIGNED, MANY_ITEMS = 131_072, 64


def pending_assignment(lake: Lake, plan: Plan, kind: Kind, clusters: str) -> Iterator[list[WorkItem]]:
    """Yield rounds of work items: vectors that the scorer ``clusters`` has not assigned, with the files that hold them.

    An item is one shard, or several small shards of together at most ASSIGNED vectors, because each item writes one
    index file, and every range of clusters opens all index files. DuckDB holds the keys of all rounds, and spills them
    if necessary: 50 GB for 800M.
    """
    digests = (clusters, plan.scorer(kind.table))
    lake.execute(
        f"CREATE OR REPLACE TEMP TABLE unassigned AS SELECT e.shard, e.{kind.key} AS key FROM {kind.table} e "
        f"LEFT JOIN (SELECT key FROM clusters WHERE scorer = ?) c ON c.key = e.{kind.key} "
        f"WHERE e.scorer = ? AND e.{kind.column} IS NOT NULL AND c.key IS NULL",
        digests,
    )
    sizes = lake.query("SELECT shard, count(*) FROM unassigned GROUP BY shard ORDER BY shard")
    most = min(ASSIGNED, sum(n for _, n in sizes) // MANY_ITEMS)
    for run in rounds(sizes):
        among = "shard IN (SELECT unnest(?::VARCHAR[])) GROUP BY shard ORDER BY shard"
        keys = f"SELECT shard, list(DISTINCT key ORDER BY key) FROM unassigned WHERE {among}"
        found = lake.query(keys, (run,)) if run else []
        files = score_paths(lake, kind.table, plan.scorer(kind.table), run)
        yield grouped([WorkItem(shard, tuple(each), files[shard], ("clusters",)) for shard, each in found], most)
    lake.execute("DROP TABLE temp.unassigned")


def grouped(items: Sequence[WorkItem], most: int) -> list[WorkItem]:
    """Merge neighbouring items as long as they have at most ``most`` keys together."""
    groups: list[list[WorkItem]] = []
    n = 0
    for item in items:
        if not groups or n + len(item.keys) > most:
            groups.append([])
            n = 0
        groups[-1].append(item)
        n += len(item.keys)
    return [_one(group) for group in groups]


def _one(group: list[WorkItem]) -> WorkItem:
    """Merge a group of items into one, with a shard name hashed from theirs."""
    if len(group) == 1:
        return group[0]
    shard = hashlib.sha256("\x1f".join(item.shard for item in group).encode()).hexdigest()[:32]
    keys = tuple(key for item in group for key in item.keys)
    return WorkItem(shard, keys, tuple(path for item in group for path in item.paths), group[0].tables)
