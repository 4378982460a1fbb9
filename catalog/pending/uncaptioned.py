"""List the images of a lake that a captioner has not described yet, regardless of a recipe's rules."""

from collections.abc import Iterator

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.superseded import gone_documents
from pairmill.catalog.pending.worklist import by_rounds, payload_paths


def uncaptioned(lake: Lake, scorer: str, most: int | None = None, item: int = 2**31) -> Iterator[list[WorkItem]]:
    """Yield rounds of work items over current distinct images without a row of ``scorer`` in ``captions``.

    Items have the files of the images' bytes. At least one round, possibly empty.

    Args:
        lake: The lake to query.
        scorer: The digest of the captioner.
        most: Only this many images, the first by hash: a draw from all shards, since one shard may be one site.
        item: The largest number of images in a work item; an item never spans two home shards.
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
    """Count the images that `uncaptioned` lists."""
    return lake.query(f"SELECT count(*) FROM ({_lacking(scorer)})")[0][0]


def _lacking(scorer: str) -> str:
    """Return SQL for shard and sha256 of current images without a row of ``scorer`` in ``captions``."""
    held = f"SELECT i.sha256 FROM images i ANTI JOIN {gone_documents()} g ON g.document_id = i.document_id"
    return (
        f"SELECT c.shard, c.sha256 FROM image_content c SEMI JOIN ({held}) h ON h.sha256 = c.sha256 "
        f"ANTI JOIN (SELECT sha256 FROM captions WHERE scorer = '{scorer}') s ON s.sha256 = c.sha256"
    )
