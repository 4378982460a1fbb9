"""Find other locations of images: an image is scored in its home shard, but other shards may contain it too."""

import pyarrow as pa

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted

_SEEN_ELSEWHERE = "FROM payloads p JOIN image_content c USING (sha256) WHERE p.shard <> c.shard AND "


def of_run(run_id: str) -> str:
    """Return the SQL condition for the locations that a run ingested by reference."""
    return f'p.bytes IS NULL AND p."commit" IN (SELECT "commit" FROM commits WHERE run_id = {quoted(run_id)})'


def of_missing() -> str:
    """Return the SQL condition for all locations of images that a stage found missing."""
    return "sha256 IN (SELECT item FROM quarantine WHERE reason = 'missing' AND stage NOT IN ('ingest', 'fetch'))"


def homes(lake: Lake, among: str) -> list[str]:
    """Return the home shards of images that other shards contain too; ``among`` is one of the conditions above."""
    return [shard for (shard,) in lake.query(f"SELECT DISTINCT c.shard {_SEEN_ELSEWHERE} {among} ORDER BY ALL")]


def elsewhere(lake: Lake, among: str, home: str) -> pa.Table:
    """Read rows for the ``payloads`` of shard ``home``: the locations of its images in other shards, each once."""
    return lake.table(
        f'SELECT sha256, p.bytes, p.uri, p."offset", p.length {_SEEN_ELSEWHERE} c.shard = {quoted(home)} AND {among} '
        'QUALIFY row_number() OVER (PARTITION BY sha256, p.uri, p."offset" ORDER BY p.shard) = 1 ORDER BY ALL'
    )
