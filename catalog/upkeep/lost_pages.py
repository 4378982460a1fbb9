"""Find the rows of pages that a lake has lost, with the units of their sources that are to be read again."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.upkeep.disagreements import READ_AGAIN
from pairmill.catalog.upkeep.lost_rows import OF_A_PAGE

_KEYS = {"documents": "document_id", "images": "image_id", "sentences": "sentence_id",
         "links": "(document_id, position)"}  # fmt: skip


@dataclass(frozen=True)
class LostPartition:
    """The record of a partition whose rows are lost."""

    table: str
    partition_id: str
    commit: int
    rows: int


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


def lost_pages(lake: Lake, tables: Collection[str], paths: Collection[str]) -> Iterator[LostPages]:
    """Yield the shards that lost rows of ``tables``: all rows of a partition, or the file ``paths`` of one."""
    lake.execute("CREATE OR REPLACE TEMP TABLE lost_paths AS SELECT unnest(?::VARCHAR[]) AS path", (sorted(paths),))
    found: dict[str, list[LostPartition]] = {}
    runs: dict[str, str] = {}
    for table in sorted(set(tables).intersection(OF_A_PAGE)):
        sql = (
            'SELECT shard, run_id, partition_id, "commit", rows FROM partitions '
            f"WHERE \"table\" = '{table}' AND rows > 0 AND (path IN (SELECT path FROM lost_paths) OR (shard NOT IN "
            f'({READ_AGAIN}) AND (shard, "commit") NOT IN (SELECT DISTINCT (shard, "commit") FROM {table} '
            "WHERE shard IS NOT NULL))) ORDER BY shard"
        )
        for shard, run_id, partition_id, commit, rows in lake.query(sql):
            found.setdefault(shard, []).append(LostPartition(table, partition_id, commit, rows))
            runs[shard] = run_id
    lake.execute("DROP TABLE lost_paths")
    for shard, partitions in found.items():
        sql = "SELECT uri, size, etag, coalesce(reader, ''), source FROM inputs WHERE shard = ? ORDER BY rowid"
        rows = lake.query(sql, (shard,))
        source = rows[0][4] if rows else ""
        yield LostPages(shard, source, runs[shard], tuple(row[:4] for row in rows), tuple(partitions))


def forget_partitions(lake: Lake, lost: LostPages) -> None:
    """Delete the records of lost partitions. The caller commits their new rows in the same transaction, if any."""
    for each in lost.partitions:
        lake.execute(
            'DELETE FROM partitions WHERE "table" = ? AND partition_id = ? AND shard = ?',
            (each.table, each.partition_id, lost.shard),
        )


def drop_repeated_rows(lake: Lake, lost: LostPages) -> None:
    """Delete rows of a later reading that repeat those of the first, as the run deleted them that compared the two."""
    for each in lost.partitions:
        if key := _KEYS.get(each.table):
            mine = 'shard = ? AND "commit" = ?'
            earlier = f'SELECT {key} FROM {each.table} WHERE "commit" < ?'
            here = f"DELETE FROM {each.table} WHERE {mine} AND {key} IN ({earlier})"
            lake.execute(here, (lost.shard, each.commit, each.commit))
