"""Find other places of pictures: a picture is scored in its home shard, but other shards may hold it too."""

import pyarrow as pa

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted

_SEEN_ELSEWHERE = "FROM payloads p JOIN image_content c USING (sha256) WHERE p.shard <> c.shard AND "


def of_run(run_id: str) -> str:
    """SQL condition for the places that a run ingested and the lake refers to."""
    return f'p.bytes IS NULL AND p."commit" IN (SELECT "commit" FROM commits WHERE run_id = {quoted(run_id)})'


def of_missing() -> str:
    """SQL condition for all places of pictures that a stage found missing."""
    return "sha256 IN (SELECT item FROM quarantine WHERE reason = 'missing' AND stage NOT IN ('ingest', 'fetch'))"


def homes(lake: Lake, among: str) -> list[str]:
    """List the home shards of pictures that were also seen elsewhere; ``among`` is one of the conditions above."""
    return [shard for (shard,) in lake.query(f"SELECT DISTINCT c.shard {_SEEN_ELSEWHERE} {among} ORDER BY ALL")]


def elsewhere(lake: Lake, among: str, home: str) -> pa.Table:
    """Read rows for the ``payloads`` of ``home``: what other shards hold of its pictures, each place once."""
    return lake.table(
        f'SELECT sha256, p.bytes, p.uri, p."offset", p.length {_SEEN_ELSEWHERE} c.shard = {quoted(home)} AND {among} '
        'QUALIFY row_number() OVER (PARTITION BY sha256, p.uri, p."offset" ORDER BY p.shard) = 1 ORDER BY ALL'
    )
