"""List the pictures of a lake that a captioner has not described yet, whatever a recipe's rules say of them."""

from collections.abc import Iterator

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.superseded import gone_documents
from pairmill.catalog.pending.worklist import by_rounds, payload_paths


def uncaptioned(lake: Lake, scorer: str, most: int | None = None, item: int = 2**31) -> Iterator[list[WorkItem]]:
    """List distinct pictures that a document still holds and that have no row of ``scorer`` in ``captions``, with their
    bytes' files: a work item a home shard, or several of at most ``item`` pictures.

    ``most`` lists so many alone, the first by their hash: a draw from all shards, since one shard may be one site. In
    rounds, at least one, maybe empty.
    """
    first = "" if most is None else f" ORDER BY sha256 LIMIT {most}"
    sql = f"SELECT shard, list(sha256 ORDER BY sha256) AS keys FROM ({_lacking(scorer)}{first}) GROUP BY shard"
    for rows in by_rounds(lake, sql):
        files = payload_paths(lake, "payloads", [shard for shard, _ in rows])
        yield [
            WorkItem(shard, tuple(keys[n : n + item]), files.get(shard, ()))
            for shard, keys in rows
            for n in range(0, len(keys), item)
        ]


def count_uncaptioned(lake: Lake, scorer: str) -> int:
    """Count the pictures that `uncaptioned` lists."""
    return lake.query(f"SELECT count(*) FROM ({_lacking(scorer)})")[0][0]


def _lacking(scorer: str) -> str:
    held = f"SELECT i.sha256 FROM images i ANTI JOIN {gone_documents()} g ON g.document_id = i.document_id"
    return (
        f"SELECT c.shard, c.sha256 FROM image_content c SEMI JOIN ({held}) h ON h.sha256 = c.sha256 "
        f"ANTI JOIN (SELECT sha256 FROM captions WHERE scorer = '{scorer}') s ON s.sha256 = c.sha256"
    )
