"""List the linked addresses that are to be fetched, count outcomes, and make images of what was fetched."""

from collections.abc import Callable

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.superseded import gone_documents

# Addresses a work item. What a killed run fetches again is at most this many a worker.
PORTION = 256
# Items of one round, which are held as a list: some million addresses.
ROUND = 4_000
# Named after the attempt before too: the same addresses asked again are other work, with partitions of its own.
SHARD = "sha256(concat('fetch', shard, portion, max(attempt)))[:32]"
# Every address once, in the ingest shard that named it first; inside it by hash, so that a host's are spread.
_HOMES = (
    "SELECT url, arg_min(shard, (commit, shard)) AS shard, arg_min(source, (commit, shard)) AS source "
    "FROM links ANTI JOIN {gone} g USING (document_id) GROUP BY url"
)
_PORTIONS = (
    f"SELECT *, (row_number() OVER (PARTITION BY shard ORDER BY sha256(url)) - 1) // {PORTION} AS portion "
    f"FROM ({_HOMES})"
)


def unfetched(lake: Lake) -> list[WorkItem]:
    """List work items over addresses never asked for, those of the first shards; call it again when they are done."""
    return _items(lake, "SELECT *, 0 AS attempt FROM portions ANTI JOIN fetches USING (url)")


def failed(lake: Lake, reason: str = "") -> list[WorkItem]:
    """List work items over addresses whose newest attempt failed: for a passing reason, or for ``reason``."""
    which = f"f.reason = '{reason}'" if reason else "f.passing"
    before = f"SELECT url, f.commit AS attempt FROM fetched f WHERE {which}"
    return _items(lake, f"SELECT * FROM portions JOIN ({before}) USING (url)", most=2**31)


def count_unfetched(lake: Lake) -> int:
    """Count the addresses that were never asked for."""
    sql = (
        f"SELECT count(DISTINCT url) FROM links ANTI JOIN {gone_documents()} g USING (document_id) "
        "ANTI JOIN fetches USING (url)"
    )
    return lake.query(sql)[0][0]


def outcomes(lake: Lake) -> list[tuple[str, str, int, int]]:
    """Count (outcome, an address, addresses, how many of them may answer another time), the most first."""
    return lake.query(
        "SELECT CASE WHEN reason = '' THEN 'fetched' WHEN http_status IS NULL THEN reason "
        "ELSE concat(reason, ' ', http_status) END AS outcome, min(url), count(*) AS n, count(*) FILTER (passing) "
        "FROM fetched GROUP BY outcome ORDER BY n DESC, outcome"
    )


def _items(lake: Lake, which: str, most: int = ROUND) -> list[WorkItem]:
    """Cut all addresses into portions by one window over all links a round. The whole list is cut, so that a killed
    round finds its own again; 30M addresses take 30 rounds."""
    found = lake.query(
        f"WITH portions AS ({_PORTIONS.format(gone=gone_documents())}) "
        f"SELECT {SHARD} AS item, list(url ORDER BY url), list(source ORDER BY url) "
        f"FROM ({which}) GROUP BY shard, portion ORDER BY shard, portion LIMIT {most}"
    )
    return [WorkItem(shard, tuple(urls), inputs={"sources": sources}) for shard, urls, sources in found]


def join(lake: Lake, begin: Callable[[], int]) -> int:
    """Give every occurrence of a fetched picture its row in ``images``; returns how many were new.

    Ids are made as ingest makes them. Quarantine keeps an address only for its newest attempt.
    """
    lake.retrying(lambda: _forget_older_faults(lake))
    new = (
        "SELECT sha256(concat_ws(chr(31), l.document_id, l.position, f.sha256))[:32] AS image_id, l.document_id, "
        "l.position, l.url, l.alt_text, f.sha256, f.width, f.height, f.format, f.n_bytes, f.shard, f.animated "
        f"FROM links l ANTI JOIN {gone_documents()} g USING (document_id) JOIN fetched f USING (url) "
        "WHERE f.sha256 IS NOT NULL"
    )
    missing = f"SELECT n.* FROM ({new}) n ANTI JOIN images USING (image_id)"
    n = lake.query(f"SELECT count(*) FROM ({missing})")[0][0]
    if n:
        commit = begin()
        lake.retrying(
            lambda: lake.execute(f'INSERT INTO images BY NAME SELECT *, {commit} AS "commit" FROM ({missing})')
        )
    return n


def _forget_older_faults(lake: Lake) -> None:
    lake.execute(
        "DELETE FROM quarantine WHERE stage = 'fetch' AND EXISTS "
        "(SELECT 1 FROM fetched f WHERE f.url = quarantine.item AND f.commit > quarantine.commit)"
    )
