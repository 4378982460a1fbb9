"""Rewrite data files without their deleted rows, and join small ones.

A replaced row is deleted first, and DuckLake never merges a file with deleted rows. Tables of often replaced rows would
keep the files of each night for good: `synthetic` had 113 after 20 nights, each with a file of deleted rows.

DuckLake's own `ducklake_rewrite_data_files` is not used. It computes the bounds of each column anew, and makes them
NULL if a file of the table has nothing but NULL in that column. The next insert then sets them to the bounds of its own
rows, and queries silently leave out all others (seen with DuckDB 1.5.5). An INSERT only widens the bounds.
"""

from collections import Counter, defaultdict
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
# Bytes from which a file that workers open by path is not joined any more. To read one of 60 KB takes 1 CPU ms, of 1 MB
# 2, of 8 MB 7, of 16 MB 18, and an item reads all of it; DuckDB takes 0.3 ms a file and statement. So a night writes at
# most this much anew a table and scorer, and snapshots keep seven times this on disk.
JOINED = 8_000_000
# Bytes from which files of a vector index are not joined: searches of large ones read merged copies of several files,
# which are void once one of these is written anew.
LARGE_INDEX = 1_000_000_000


def rewrite(writer: "Writer", table: str, paths: Sequence[str]) -> None:
    """Move the remaining rows of some files of ``table`` into new files, in one transaction.

    ``paths`` are relative to the data path. The rows keep their order; those of a vector index are sorted by cluster.
    Readers of older snapshots still find the old files, until `sweep` has expired these. Raises LeaseLost.
    """
    lake = writer.lake
    these = f"filename IN ({', '.join(quoted(lake.data_path + path) for path in paths)})"

    def body() -> None:
        if table in BOOKKEEPING:  # an inlined deletion of all rows of a file would leave the file
            inline(lake, table, 0)
        order = "cluster, rowid" if table == "vector_index" else "rowid"
        for rows in _files_apart(lake, table, these):
            lake.execute(f"INSERT INTO {table} SELECT * FROM {table} WHERE {these} AND {rows} ORDER BY {order}")
        lake.execute(f"DELETE FROM {table} WHERE {these}")
        if table in BOOKKEEPING:
            inline(lake, table)
        lake.execute(f"CALL ducklake_set_commit_message('lake', 'pairmill', {quoted(SAME_ROWS)})")

    writer.check()
    lake.retrying(body)


def _files_apart(lake: Lake, table: str, these: str) -> list[str]:
    """Return SQL conditions on the rows that meet ``these``, one for each new file."""
    if table == "payloads":  # DuckDB's row groups have 2,048 pictures at least, which a worker loads at once
        stored = f"sum(CASE WHEN bytes IS NULL THEN 0 ELSE length END) OVER (ORDER BY rowid) // {AT_ONCE} AS portion"
        portions = f"SELECT rowid AS row, {stored} FROM payloads WHERE {these}"
        ends = lake.query(f"SELECT min(row), max(row) FROM ({portions}) GROUP BY portion ORDER BY ALL")
        return [f"rowid BETWEEN {first} AND {last}" for first, last in ends]
    if (common := READ_BY_PATH.get(table)) is None:
        return ["true"]
    values = lake.query(f"SELECT DISTINCT {common} FROM {table} WHERE {these} ORDER BY ALL")
    return [f"{common} = {quoted(value)}" for (value,) in values]


def files_to_join(lake: Lake, table: str) -> Iterator[tuple[str, ...]]:
    """Yield groups of small files of a table in READ_BY_PATH, each to become one file, until that has JOINED bytes.

    Paths are relative to the data path; the files are in the order of their age. Files without rows are left out.
    """
    sizes = lake.metadata.read(f"""SELECT 'main/' || table_name || '/' || f.path, file_size_bytes
        FROM ducklake_data_file f JOIN ducklake_table t USING (table_id) WHERE table_name = {quoted(table)}
        AND f.end_snapshot IS NULL AND t.end_snapshot IS NULL AND file_size_bytes < {JOINED} ORDER BY data_file_id""")
    if len(sizes) < 2:
        return
    among = ", ".join(quoted(lake.data_path + path) for path, _ in sizes)
    rows = f"SELECT filename, {READ_BY_PATH[table]} AS common FROM {table} WHERE filename IN ({among})"
    if table == "vector_index":
        large = f"SELECT scorer FROM partitions WHERE \"table\" = '{table}' GROUP BY ALL"
        rows += f" AND scorer NOT IN ({large} HAVING sum(bytes) > {LARGE_INDEX})"
    common = dict(lake.query(f"SELECT filename, min(common) FROM ({rows}) GROUP BY filename"))
    groups: defaultdict[str, list[str]] = defaultdict(list)
    held: Counter[str] = Counter()
    for path, size in sizes:
        if (value := common.get(lake.data_path + path)) is not None:
            groups[value].append(path)
            held[value] += size
            if held[value] >= JOINED:
                yield tuple(groups.pop(value))
                del held[value]
    yield from (tuple(group) for group in groups.values() if len(group) > 1)


def drop_emptied(writer: "Writer") -> None:
    """Drop data files whose rows are all deleted from the current snapshot.

    DuckLake itself does so only if one statement deletes all rows of a file. Raises LeaseLost.
    """
    metadata = writer.lake.metadata
    emptied = """SELECT data_file_id, delete_file_id, d.begin_snapshot AS since FROM ducklake_data_file f
        JOIN ducklake_delete_file d USING (data_file_id)
        WHERE f.end_snapshot IS NULL AND d.end_snapshot IS NULL AND d.delete_count = f.record_count"""

    def body() -> None:
        writer.check()
        metadata.write(f"CREATE OR REPLACE TEMP TABLE emptied_files AS {emptied}")
        metadata.write("""UPDATE ducklake_data_file SET end_snapshot = e.since FROM emptied_files e
            WHERE ducklake_data_file.data_file_id = e.data_file_id""")
        metadata.write("""UPDATE ducklake_delete_file SET end_snapshot = begin_snapshot
            WHERE delete_file_id IN (SELECT delete_file_id FROM emptied_files)""")

    metadata.retrying(body)


def with_deleted_rows(
    lake: Lake, tables: Collection[str], smaller_than: int = 2**62
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield (table, paths) of files with deleted rows and less than ``smaller_than`` bytes, in groups of AT_ONCE bytes.

    Groups of files that workers open by path have JOINED bytes. Paths are relative to the data path; tables come by
    name, and their files by age.
    """
    files = f"""SELECT DISTINCT t.table_name, 'main/' || t.table_name || '/' || f.path AS path,
        f.file_size_bytes AS size, f.data_file_id AS id FROM ducklake_data_file f JOIN ducklake_delete_file d
        USING (data_file_id) JOIN ducklake_table t ON t.table_id = f.table_id WHERE f.end_snapshot IS NULL
        AND d.end_snapshot IS NULL AND t.end_snapshot IS NULL AND f.file_size_bytes < {smaller_than}"""
    most = f"CASE WHEN table_name IN ({', '.join(map(quoted, READ_BY_PATH))}) THEN {JOINED} ELSE {AT_ONCE} END"
    portions = f"SELECT *, sum(size) OVER (PARTITION BY table_name ORDER BY id) // {most} AS portion FROM ({files})"
    found = f"SELECT table_name, portion, list(path ORDER BY id) FROM ({portions}) GROUP BY ALL ORDER BY ALL"
    for table, _, paths in lake.metadata.read(found):
        if table in tables:
            yield table, tuple(paths)
