"""Order an export's rows by a seeded hash, and read them by the shards that have their pictures."""

from collections.abc import Iterator

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted


def shuffled(seed: int, key: str) -> str:
    """Return SQL of the order by the sha256 of ``seed`` and the column ``key``, then by the key.

    Hex digits compare as bytes. So the order is the same on every machine, whatever its locale, its threads or the
    order in which it lists files.
    """
    return f"sha256({quoted(f'{seed}/')} || {key}), {key}"


def by_shard(lake: Lake, first: int, last: int) -> Iterator[tuple[str, list[int], list[str]]]:
    """Yield, shard by shard, the gathered rows number ``first`` to ``last`` - 1: (shard, numbers, sha256s).

    Memory is the rows of one shard. DuckDB sorts the rows once, and spills if necessary.
    """
    wanted = f"SELECT coalesce(shard, '') AS shard, n, sha256 FROM export_rows WHERE n >= {first} AND n < {last}"
    lake.execute(f"CREATE OR REPLACE TEMP TABLE export_pass AS {wanted} ORDER BY shard, n")
    try:
        for (shard,) in lake.query("SELECT DISTINCT shard FROM export_pass ORDER BY shard"):
            rows = lake.table("SELECT n, sha256 FROM export_pass WHERE shard = ? ORDER BY n", (shard,))
            yield shard, rows["n"].to_pylist(), rows["sha256"].to_pylist()
    finally:
        lake.execute("DROP TABLE IF EXISTS temp.export_pass")
