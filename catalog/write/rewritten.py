"""Write data files anew without their deleted rows.

A row that is replaced is deleted first, and DuckLake never merges a file that has deleted rows. In tables whose rows
are replaced often, every night so left its files for good: 113 of `synthetic` after 20 nights, each with a second file
that lists its deleted rows.

DuckLake's own `ducklake_rewrite_data_files` is not used. It computes the bounds of each column anew, and makes them
NULL if a file of the table has nothing but NULL in that column. The next insert then sets them to the bounds of its own
rows, and queries silently leave out all others (seen with DuckDB 1.5.5). An INSERT only widens the bounds.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.lake.schema import BOOKKEEPING, READ_BY_PATH, inline

if TYPE_CHECKING:
    from pairmill.catalog.write.lease import Writer  # imports Arrow, 0.1 CPU s, which `finished` does not need

# The commit message of snapshots that change no row; `finished.state` passes over them.
SAME_ROWS = "pairmill: rows written anew"
# Bytes of files that one transaction writes anew. A kill costs one transaction.
AT_ONCE = 64_000_000
_BY_PATH = ", ".join(map(quoted, READ_BY_PATH))


def rewrite(writer: "Writer", table: str, paths: Sequence[str]) -> None:
    """Move the rows that are left in some files of ``table`` into new files, in one transaction.

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
    """Drop the files of which every row is deleted: since the snapshot that deleted the last one, none sees them.

    DuckLake drops a file only if one statement deletes all its rows. Raises LeaseLost.
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


def with_deleted_rows(lake: Lake, smaller_than: int = 2**62) -> dict[str, list[list[str]]]:
    """Return, by table, the files under ``smaller_than`` bytes that have deleted rows, in lists of AT_ONCE bytes.

    Paths are relative to the data path. Tables whose files workers open by path are left out.
    """
    files = defaultdict(list)
    for table, path, size, _ in lake.metadata.read(
        "SELECT DISTINCT t.table_name, 'main/' || t.table_name || '/' || f.path AS path, f.file_size_bytes, "
        "f.data_file_id FROM ducklake_data_file f JOIN ducklake_delete_file d USING (data_file_id) "
        "JOIN ducklake_table t ON t.table_id = f.table_id WHERE f.end_snapshot IS NULL AND d.end_snapshot IS NULL "
        f"AND t.end_snapshot IS NULL AND f.file_size_bytes < {smaller_than} "
        f"AND t.table_name NOT IN ({_BY_PATH}) ORDER BY f.data_file_id"
    ):
        files[table].append((path, size))
    return {table: list(_portions(found)) for table, found in files.items()}


def _portions(files: Sequence[tuple[str, int]]) -> Iterator[list[str]]:
    """Split files (path, bytes) into lists of paths with at most AT_ONCE bytes together."""
    portion: list[str] = []
    held = 0
    for path, size in files:
        if portion and held + size > AT_ONCE:
            yield portion
            portion, held = [], 0
        portion.append(path)
        held += size
    if portion:
        yield portion
