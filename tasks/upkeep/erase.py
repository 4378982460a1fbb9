"""Erase deleted rows from a lake's own stores: data files, snapshots, inlined rows, statistics and free pages.

DuckLake's DELETE leaves the bytes: in the data file, beside which it writes a file of deleted positions; in older
snapshots; for inlined rows in the metadata database; and in the smallest and largest value of each column, which it
keeps to plan queries. Every step may be killed and done again.
"""

import uuid
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from pairmill.catalog.lake.arrow import arrow_schema
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.lease_row import former_holders
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.lake.schema import BOOKKEEPING, READ_BY_PATH
from pairmill.catalog.upkeep.stale_statistics import refresh_statistics
from pairmill.catalog.upkeep.taken_rows import PartitionFile, rename_partition
from pairmill.catalog.upkeep.vacuum import vacuum
from pairmill.catalog.write.lease import Writer
from pairmill.catalog.write.rewritten import drop_emptied, rewrite, with_deleted_rows
from pairmill.catalog.write.sweep import remove_leftovers
from pairmill.tasks.run.items.parquet_file import ParquetFile

AT_ONCE = 100_000
WRITTEN_SECONDS = 86_400  # as long as a worker may write one file


@dataclass(frozen=True)
class Erased:
    """Data files that were rewritten without their deleted rows, snapshots that expired, files that were removed.

    ``why`` says what could not be done, '' if all was. ``others`` are runs of other machines that may still write:
    unreferenced files of a day stay.
    """

    rewritten: int
    snapshots: int
    removed: int
    why: str
    others: tuple[str, ...] = ()


def erase(writer: Writer) -> Erased:
    """Erase all deleted rows of a lake, and all unreferenced files. Readers of older snapshots must open it anew.

    The holder of the lease is the only one that writes, unless a machine that lost it was not seen to end. Rewrites
    each file that has a deleted row: at most the whole lake, one file (512 MB) at a time. Raises LeaseLost.
    """
    lake = writer.lake
    rewritten = _rewrite_all(writer, lake.tables.difference(BOOKKEEPING))
    own = lake.tables.intersection(BOOKKEEPING)  # last: to rewrite the others changes `partitions`
    for table in sorted(own):
        writer.check()
        lake.execute(f"CALL ducklake_flush_inlined_data('lake', table_name => '{table}')")
    rewritten += _rewrite_all(writer, own)
    writer.check()
    now = datetime.now(UTC)
    expired = _call(lake, "ducklake_expire_snapshots", now)
    removed = lake.query("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
    others = tuple(f"run {each.run_id} on {each.holder}" for each in former_holders(lake.metadata))
    if others:
        before = now - timedelta(seconds=WRITTEN_SECONDS)
        removed += _call(lake, "ducklake_delete_orphaned_files", before)
    else:
        removed += lake.query("CALL ducklake_delete_orphaned_files('lake', cleanup_all => true)")
    leftovers = remove_leftovers(lake, before.timestamp() if others else float("inf"))
    refresh_statistics(writer)
    why = vacuum(writer, even_if_few=True).why
    return Erased(rewritten, len(expired), len(removed) + len(leftovers), why, others)


def _rewrite_all(writer: Writer, tables: Collection[str]) -> int:
    """Rewrite the files of these tables that have deleted rows; return their number."""
    drop_emptied(writer)
    rewritten = 0
    for table, paths in with_deleted_rows(writer.lake, tables):
        if table in READ_BY_PATH:
            for path in paths:
                writer.check()
                _replace(writer, table, path)
        else:
            rewrite(writer, table, paths)
        rewritten += len(paths)
    return rewritten


def _replace(writer: Writer, table: str, path: str) -> None:
    """Replace a file that workers open by its path with one of the rows that are left."""
    lake, kept = writer.lake, 0
    here = f"filename = {quoted(lake.data_path + path)}"
    schema = arrow_schema(table)
    file = ParquetFile(f"{lake.data_path}main/{table}/{writer.run_id}/rewritten-{uuid.uuid4().hex}.parquet")
    columns = ", ".join(f'"{name}"' for name in schema.names)
    for batch in lake.blocks(f"SELECT {columns} FROM {table} WHERE {here} ORDER BY rowid", rows=AT_ONCE):
        file.write(pa.Table.from_batches([batch]).cast(schema))
        kept += batch.num_rows
    new, size, digest = file.close()

    def body() -> None:
        writer.check()
        lake.execute(f"DELETE FROM {table} WHERE {here}")
        lake.execute("CALL ducklake_add_data_files('lake', ?, ?)", (table, [new]))
        rename_partition(lake, table, path, PartitionFile(new.removeprefix(lake.data_path), kept, size))

    lake.retrying(body)
    lake.checksums.add({new.removeprefix(lake.data_path): digest})


def _call(lake: Lake, function: str, before: datetime) -> list[tuple]:
    """Call a DuckLake maintenance function for everything older than ``before`` and return its rows."""
    return lake.query(f"CALL {function}('lake', older_than => ?::TIMESTAMPTZ)", (before,))
