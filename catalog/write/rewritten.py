"""Rewrite data files without their deleted rows.

A row that is replaced is deleted first, and DuckLake never merges a file that has deleted rows. Tables whose rows are
replaced often would keep the files of each night for good: `synthetic` had 113 after 20 nights, each with a second file
that lists its deleted rows.

DuckLake's own `ducklake_rewrite_data_files` is not used. It computes the bounds of each column anew, and makes them
NULL if a file of the table has nothing but NULL in that column. The next insert then sets them to the bounds of its own
rows, and queries silently leave out all others (seen with DuckDB 1.5.5). An INSERT only widens the bounds.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.lake.schema import BOOKKEEPING, READ_BY_PATH, inline

if TYPE_CHECKING:
    from pairmill.catalog.write.lease import Writer  # imports Arrow, 0.1 CPU s, which `finished` does not need

# The commit message of snapshots that change no row; `finished.state` passes over them.
SAME_ROWS = "pairmill: rows written anew"
# Bytes of files that one transaction writes anew, and one file more. A kill costs one transaction.
AT_ONCE = 64_000_000
_BY_PATH = ", ".join(map(quoted, READ_BY_PATH))


def rewrite(writer: "Writer", table: str, paths: Sequence[str]) -> None:
    """Move the remaining rows of some files of ``table`` into new files, in one transaction.

    ``paths`` are relative to the data path. The rows keep their order. Readers of older snapshots still find the old
    files, until `sweep` has expired these. Raises LeaseLost.
    """
    lake = writer.lake
    these = f"filename IN ({', '.join(quoted(lake.data_path + path) for path in paths)})"

    def body() -> None:
        if table in BOOKKEEPING:  # an inlined deletion of all rows of a file would leave the file
            inline(lake, table, 0)
        lake.execute(f"INSERT INTO {table} SELECT * FROM {table} WHERE {these} ORDER BY rowid")
        lake.execute(f"DELETE FROM {table} WHERE {these}")
        if table in BOOKKEEPING:
            inline(lake, table)
        lake.execute(f"CALL ducklake_set_commit_message('lake', 'pairmill', {quoted(SAME_ROWS)})")

    writer.check()
    lake.retrying(body)


def drop_emptied(writer: "Writer") -> None:
    """Drop data files whose rows are all deleted from the current snapshot.

    DuckLake itself does so only if one statement deletes all rows of a file. Tables whose files workers open by path
    are left out. Raises LeaseLost.
    """
    metadata = writer.lake.metadata
    emptied = (
        "SELECT data_file_id, delete_file_id, d.begin_snapshot AS since FROM ducklake_data_file f "
        "JOIN ducklake_delete_file d USING (data_file_id) JOIN ducklake_table t ON t.table_id = f.table_id "
        "WHERE f.end_snapshot IS NULL AND d.end_snapshot IS NULL AND d.delete_count = f.record_count "
        f"AND t.table_name NOT IN ({_BY_PATH})"
    )

    def body() -> None:
        writer.check()
        metadata.write(f"CREATE OR REPLACE TEMP TABLE emptied_files AS {emptied}")
        metadata.write(
            "UPDATE ducklake_data_file SET end_snapshot = e.since FROM emptied_files e "
            "WHERE ducklake_data_file.data_file_id = e.data_file_id"
        )
        metadata.write(
            "UPDATE ducklake_delete_file SET end_snapshot = begin_snapshot "
            "WHERE delete_file_id IN (SELECT delete_file_id FROM emptied_files)"
        )

    metadata.retrying(body)


def with_deleted_rows(
    lake: Lake, tables: Collection[str], smaller_than: int = 2**62
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield (table, paths) of files with deleted rows and less than ``smaller_than`` bytes, in groups of AT_ONCE bytes.

    Paths are relative to the data path; tables come by name, and their files by age.
    """
    files = (
        "SELECT DISTINCT t.table_name, 'main/' || t.table_name || '/' || f.path AS path, f.file_size_bytes AS size, "
        "f.data_file_id AS id FROM ducklake_data_file f JOIN ducklake_delete_file d USING (data_file_id) "
        "JOIN ducklake_table t ON t.table_id = f.table_id WHERE f.end_snapshot IS NULL AND d.end_snapshot IS NULL "
        f"AND t.end_snapshot IS NULL AND f.file_size_bytes < {smaller_than}"
    )
    portions = f"SELECT *, sum(size) OVER (PARTITION BY table_name ORDER BY id) // {AT_ONCE} AS portion FROM ({files})"
    found = f"SELECT table_name, portion, list(path ORDER BY id) FROM ({portions}) GROUP BY ALL ORDER BY ALL"
    for table, _, paths in lake.metadata.read(found):
        if table in tables:
            yield table, tuple(paths)
