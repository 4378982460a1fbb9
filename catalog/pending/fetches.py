"""List linked addresses to fetch, count those never requested, and create image rows from fetched files."""

from collections.abc import Callable, Iterator
from datetime import datetime

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.superseded import gone_documents

# Addresses per work item; after a kill, each worker fetches at most this many again.
PORTION = 256
# Items per round, which are held in a list: about a million addresses.
ROUND = 4_000
# The name includes the previous attempt: retrying the same addresses is other work, with its own partitions.
SHARD = "sha256(concat('fetch', shard, portion, max(attempt)))[:32]"
# Each address once, in the ingest shard that named it first; by hash within it, to spread each host's addresses.
_HOMES = """SELECT url, arg_min(shard, (commit, shard)) AS shard, arg_min(source, (commit, shard)) AS source
    FROM links ANTI JOIN {gone} g USING (document_id) GROUP BY url"""
_PORTIONS = f"""SELECT *, (row_number() OVER (PARTITION BY shard ORDER BY sha256(url)) - 1) // {PORTION} AS portion
    FROM ({_HOMES})"""


def pending_fetches(lake: Lake) -> list[WorkItem]:
    """Return the next round of work items, in shard order, over addresses never requested; [] if none is left."""
    return _items(lake, "SELECT *, 0 AS attempt FROM portions ANTI JOIN fetches USING (url)")


def failed_fetches(lake: Lake, reason: str = "", most_times: int = 0) -> list[WorkItem]:
    """Return work items over addresses whose newest request failed: temporarily, or for ``reason`` if it is given.

    ``most_times`` > 0 leaves out addresses that were requested more often.
    """
    which = f"f.reason = '{reason}'" if reason else "f.passing"
    if most_times:
        which += f" AND f.url IN (SELECT url FROM fetches GROUP BY url HAVING count(*) <= {most_times})"
    before = f"SELECT url, f.commit AS attempt FROM fetched f WHERE {which}"
    return _items(lake, f"SELECT * FROM portions JOIN ({before}) USING (url)", most=2**31)


def count_unfetched(lake: Lake) -> int:
    """Count the addresses that were never requested."""
    sql = f"""SELECT count(DISTINCT url) FROM links ANTI JOIN {gone_documents()} g USING (document_id)
        ANTI JOIN fetches USING (url)"""
    return lake.query(sql)[0][0]


def _items(lake: Lake, which: str, most: int = ROUND) -> list[WorkItem]:
    """Return work items of addresses to request: those of ``which``, an SQL query over the CTE ``portions``.

    Portions are cut of all addresses, fetched ones too: a killed round gets the same items again. 30M addresses take 30
    rounds, each with one window over all links.
    """
    found = lake.query(f"""WITH portions AS ({_PORTIONS.format(gone=gone_documents())})
        SELECT {SHARD} AS item, list(url ORDER BY url), list(source ORDER BY url)
        FROM ({which}) GROUP BY shard, portion ORDER BY shard, portion LIMIT {most}""")
    return [WorkItem(shard, tuple(urls), inputs={"sources": sources}) for shard, urls, sources in found]


def read_hosts(lake: Lake, since: datetime) -> set[str]:
    """Return the hosts whose opt-out files (robots.txt, tdmrep.json, ai.txt) were requested after ``since``."""
    return {host for (host,) in lake.query("SELECT DISTINCT host FROM opt_outs WHERE read_at > ?", (since,))}


def opt_outs(lake: Lake) -> Iterator[dict[str, str]]:
    """Yield host, file, outcome and text of each host's files, as they were read last; absent files are left out."""
    newest = "QUALIFY row_number() OVER (PARTITION BY host, file ORDER BY read_at DESC) = 1"
    sql = f"SELECT * FROM (SELECT host, file, outcome, said FROM opt_outs {newest}) WHERE outcome <> 'absent'"
    return (row for rows in lake.blocks(sql, rows=1000) for row in rows.to_pylist())


def join_fetched(lake: Lake, begin: Callable[[], int]) -> int:
    """Insert the missing rows of ``images`` for every occurrence of a fetched image; return the number of new rows.

    Ids are computed as in ingest. Quarantine keeps an address only if its newest attempt failed.
    """
    older_faults = """DELETE FROM quarantine WHERE stage = 'fetch' AND EXISTS
        (SELECT 1 FROM fetched f WHERE f.url = quarantine.item AND f.commit > quarantine.commit)"""
    lake.retrying(lambda: lake.execute(older_faults))
    new = f"""SELECT sha256(concat_ws(chr(31), l.document_id, l.position, f.sha256))[:32] AS image_id, l.document_id,
        l.position, l.url, l.alt_text, f.sha256, f.width, f.height, f.format, f.n_bytes, f.shard, f.animated,
        l.reading_order
        FROM links l ANTI JOIN {gone_documents()} g USING (document_id) JOIN fetched f USING (url)
        WHERE f.sha256 IS NOT NULL"""
    missing = f"SELECT n.* FROM ({new}) n ANTI JOIN images USING (image_id)"
    if n := lake.query(f"SELECT count(*) FROM ({missing})")[0][0]:
        commit = begin()
        sql = f'INSERT INTO images BY NAME SELECT *, {commit} AS "commit" FROM ({missing})'
        lake.retrying(lambda: lake.execute(sql))
    return n


def awaits_pictures(lake: Lake) -> bool:
    """Return whether the lake's documents have addresses of pictures, and none of them has come."""
    return bool(lake.query("SELECT 1 FROM links WHERE NOT EXISTS (SELECT 1 FROM images) LIMIT 1"))
