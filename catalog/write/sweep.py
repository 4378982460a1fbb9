"""Remove unreferenced files, expire old snapshots, and compact small files and inlined rows. Requires the lease."""

import os
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

from pairmill.catalog.lake import snapshot
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.lease_row import forget_former_holders
from pairmill.catalog.lake.schema import BOOKKEEPING, READ_BY_PATH
from pairmill.catalog.write.lease import Writer, thin
from pairmill.catalog.write.rewritten import drop_emptied, files_to_join, rewrite, with_deleted_rows

SNAPSHOT_SECONDS = 7 * 86_400
SMALL_BYTES = 1_000_000
# An age for `sweep` that spares no file: an hour ahead, whatever the clocks of this machine and of the metadata say.
ANY_AGE = -3600


def sweep(
    writer: Writer,
    older_than_seconds: float = 86_400,
    snapshot_seconds: float = SNAPSHOT_SECONDS,
    replaced_seconds: float | None = None,
) -> tuple[int, list[str]]:
    """Expire snapshots older than ``snapshot_seconds``, then remove unreferenced files older than the other ages.

    Killed runs, compaction and takedowns leave unreferenced files. The lease excludes other writers; the minimum age
    protects files that a worker of a former lease holder may still write. ``replaced_seconds`` is the minimum age of
    files that an expired snapshot named, by default the same; no worker writes such files.

    Returns the number of expired snapshots, and the removed files (paths or S3 URLs). Raises LeaseLost.
    """
    writer.check()
    lake = writer.lake
    now = datetime.now(UTC)
    expired = _call(lake, "ducklake_expire_snapshots", now - timedelta(seconds=snapshot_seconds))
    before = now - timedelta(seconds=older_than_seconds)
    replaced = before if replaced_seconds is None else now - timedelta(seconds=replaced_seconds)
    removed = [row[0] for row in _call(lake, "ducklake_cleanup_old_files", replaced)]
    removed += [row[0] for row in _call(lake, "ducklake_delete_orphaned_files", before)]
    removed += _remove_leftovers(lake, time.time() - older_than_seconds)
    forget_former_holders(lake.metadata, older_than_seconds)
    return len(expired), removed


def checkpoint(writer: Writer) -> None:
    """Move bookkeeping rows from the metadata database to Parquet, and compact small files.

    Compacts all files of bookkeeping tables, and small files of the others: under ``SMALL_BYTES``, or under
    `rewritten.JOINED` where workers open them by path. So none grows with the number of commits. Such files with
    deleted rows are rewritten first, since DuckLake does not merge them; a larger file keeps its deleted rows until a
    removal (`tasks.upkeep.removal`). `sweep` later removes the replaced files. Each new file is a transaction: a kill
    costs one of them. Raises LeaseLost.
    """
    lake = writer.lake
    flush_inlined(writer)
    drop_emptied(writer)
    merged = lake.tables.difference(READ_BY_PATH)
    for table, paths in with_deleted_rows(lake, merged, SMALL_BYTES):
        rewrite(writer, table, paths)
    # DuckLake takes 15 CPU ms to find that a table has nothing to merge, and a lake has 60 tables.
    files = Counter(file.table for file in snapshot.files(lake.unchecked, merged))
    for table in sorted(table for table, n in files.items() if n > 1):
        _merge(writer, table, "" if table in BOOKKEEPING else f", max_file_size => {SMALL_BYTES}")
    for table in sorted(lake.tables.intersection(READ_BY_PATH)):
        for paths in files_to_join(lake, table):
            rewrite(writer, table, paths)
    thin(lake)


def flush_inlined(writer: Writer) -> None:
    """Move the rows that are in the metadata database to Parquet files, in one transaction. Raises LeaseLost.

    That takes 260 CPU ms on a small lake, and 60 if there is nothing to move. A statement for each table took 440 and
    180: DuckLake loads the catalog as of the creation of a table, and 28 tables were created at other times.
    """
    writer.check()
    writer.lake.execute("CALL ducklake_flush_inlined_data('lake')")


def _merge(writer: Writer, table: str, limit: str) -> None:
    """Merge adjacent files of a table, in one transaction for each new file (512 MB at most), until none is left."""
    sql = f"CALL ducklake_merge_adjacent_files('lake', '{table}', max_compacted_files => 1{limit})"
    merged = 2
    while merged > 1:
        writer.check()
        merged = sum(n for _, _, n, _ in writer.lake.query(sql))


def _call(lake: Lake, function: str, before: datetime) -> list[tuple]:
    """Call a DuckLake maintenance function for everything older than ``before`` and return its rows."""
    return lake.query(f"CALL {function}('lake', older_than => ?::TIMESTAMPTZ)", (before,))


def _remove_leftovers(lake: Lake, before: float) -> list[str]:
    """Remove half-written files, and empty folders, older than ``before`` (seconds since 1970); S3 has neither."""
    if lake.data_path.startswith("s3://"):
        return []
    removed = []
    for folder, _, names in os.walk(lake.data_path + "main", topdown=False):
        for path in (os.path.join(folder, name) for name in names if not name.endswith(".parquet")):
            if os.stat(path).st_mtime < before:
                os.remove(path)
                removed.append(path)
        if not os.listdir(folder) and os.stat(folder).st_mtime < before:
            os.rmdir(folder)
    return removed
