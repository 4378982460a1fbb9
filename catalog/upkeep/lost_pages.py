"""Find the rows of pages that a lake has lost, with the units of their sources that are to be read again."""

from collections.abc import Collection
from dataclasses import dataclass

import pyarrow as pa

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.upkeep.disagreements import READ_AGAIN
from pairmill.catalog.upkeep.lost_rows import OF_A_PAGE
from pairmill.catalog.upkeep.recorded_files import ROWS_LEFT, whole_rows

_KEYS = {"documents": ("document_id",), "images": ("image_id",), "sentences": ("sentence_id",),
         "links": ("document_id", "position")}  # fmt: skip


@dataclass(frozen=True)
class LostPartition:
    """The record of a partition whose rows are lost, with the path of its file, '' if it has none of its own."""

    table: str
    partition_id: str
    commit: int
    rows: int
    path: str


@dataclass(frozen=True)
class LostPages:
    """The lost partitions of one shard, and what they were read from.

    ``units`` are (uri, size, etag, reader) in the order in which they were read, empty if that is not recorded.
    """

    shard: str
    source: str
    run_id: str
    units: tuple[tuple[str, int, str, str], ...]
    partitions: tuple[LostPartition, ...]


def lost_pages(lake: Lake, tables: Collection[str], paths: Collection[str], bad: Collection[int]) -> list[LostPages]:
    """Return the shards that lost rows of ``tables``: all rows of a partition, or the file ``paths`` of one.

    The files ``bad`` are not read. Rows of a partition's file count as lost even if `partitions` records fewer.
    """
    lake.check_tables_of("partitions inputs rereads")
    lake.execute("CREATE OR REPLACE TEMP TABLE lost_paths AS SELECT unnest(?::VARCHAR[]) AS path", (sorted(paths),))
    found: dict[str, list[LostPartition]] = {}
    runs: dict[str, str] = {}
    for table in sorted(set(tables).intersection(OF_A_PAGE)):
        sql = (
            'SELECT shard, run_id, partition_id, "commit", greatest(p.rows, coalesce(n_left, 0)), path '
            f"FROM partitions p LEFT JOIN {ROWS_LEFT} USING (path) "
            f"WHERE \"table\" = '{table}' AND p.rows > 0 AND (path IN (SELECT path FROM lost_paths) OR (shard NOT IN "
            f'({READ_AGAIN}) AND (shard, "commit") NOT IN (SELECT DISTINCT (shard, "commit") FROM '
            f"{whole_rows(lake, table, bad)} WHERE shard IS NOT NULL))) ORDER BY shard"
        )
        for shard, run_id, partition_id, commit, rows, path in lake.unchecked(sql):
            found.setdefault(shard, []).append(LostPartition(table, partition_id, commit, rows, path))
            runs[shard] = run_id
    lake.execute("DROP TABLE lost_paths")
    pages = []
    for shard, partitions in found.items():
        sql = "SELECT uri, size, etag, coalesce(reader, ''), source FROM inputs WHERE shard = ? ORDER BY rowid"
        rows = lake.query(sql, (shard,))
        source = rows[0][4] if rows else ""
        pages.append(LostPages(shard, source, runs[shard], tuple(row[:4] for row in rows), tuple(partitions)))
    return pages


def forget_partitions(lake: Lake, lost: LostPages) -> None:
    """Delete the records of lost partitions. The caller commits their new rows in the same transaction, if any."""
    for each in lost.partitions:
        lake.execute(
            'DELETE FROM partitions WHERE "table" = ? AND partition_id = ? AND shard = ?',
            (each.table, each.partition_id, lost.shard),
        )


def unrepeated(lake: Lake, lost: LostPages, table: str, rows: pa.Table, bad: Collection[int]) -> pa.Table:
    """Return the rows, read again, that no earlier reading has: the run that compared the two dropped the others."""
    key = _KEYS.get(table)
    if key is None or not lake.query(f"SELECT 1 FROM ({READ_AGAIN}) WHERE shard = ? LIMIT 1", (lost.shard,)):
        return rows
    commit = min(each.commit for each in lost.partitions if each.table == table)
    numbered = rows.select(key).append_column("n", pa.array(range(rows.num_rows), pa.int64()))
    lake.connection.register("read_again", numbered)
    earlier = f'SELECT {", ".join(key)} FROM {whole_rows(lake, table, bad)} WHERE "commit" < {commit}'
    new = lake.unchecked(f"SELECT n FROM read_again ANTI JOIN ({earlier}) USING ({', '.join(key)}) ORDER BY n")
    lake.connection.unregister("read_again")
    return rows.take([n for (n,) in new])
