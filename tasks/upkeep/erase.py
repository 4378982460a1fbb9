"""Erase deleted rows from a lake's own stores: data files, snapshots, inlined rows, statistics and free pages.

DuckLake's DELETE leaves the bytes: in the data file, beside which it writes a file of deleted positions; in older
snapshots; for inlined rows in the metadata database; and in the smallest and largest value of each column, which it
keeps to plan queries. Every step may be killed and done again.
"""

import uuid
from collections.abc import Collection
from dataclasses import dataclass

from pairmill.catalog.lake.lease_row import former_holders
from pairmill.catalog.lake.schema import BOOKKEEPING, READ_BY_PATH
from pairmill.catalog.upkeep.stale_statistics import refresh_statistics
from pairmill.catalog.upkeep.taken_rows import PartitionFile, replace_file, rows_left
from pairmill.catalog.upkeep.vacuum import vacuum
from pairmill.catalog.write.lease import Writer
from pairmill.catalog.write.rewritten import drop_emptied, rewrite, with_deleted_rows
from pairmill.catalog.write.sweep import ANY_AGE, flush_inlined, sweep
from pairmill.tasks.run.items.partition import ParquetFile

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
    flush_inlined(writer, sorted(own))
    rewritten += _rewrite_all(writer, own)
    others = tuple(f"run {each.run_id} on {each.holder}" for each in former_holders(lake.metadata))
    swept = sweep(writer, WRITTEN_SECONDS if others else ANY_AGE, ANY_AGE, ANY_AGE)
    refresh_statistics(writer)
    why = vacuum(writer, even_if_few=True).why
    return Erased(rewritten, swept.snapshots, len(swept.files), why, others)


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
    file = ParquetFile(f"{lake.data_path}main/{table}/{writer.run_id}/rewritten-{uuid.uuid4().hex}.parquet")
    for rows in rows_left(lake, table, path):
        file.write(rows)
        kept += rows.num_rows
    new, size, digest = file.close()
    replace_file(writer, table, path, PartitionFile(new.removeprefix(lake.data_path), kept, size))
    lake.checksums.add({new.removeprefix(lake.data_path): digest})
