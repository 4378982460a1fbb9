"""List the files of a lake's current snapshot with their recorded size, rows and sha256, in pages.

The list is a temporary table of DuckDB, which spills to disk where memory is insufficient. To list 2M files takes 35 s
and 1.1 GB, to read all pages 13 s. It is read from DuckLake's own tables in the metadata database and opens no data
file, so it can be made of a lake with damaged files.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import duckdb

from pairmill.catalog.lake.checksums import WRITTEN
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.lake.snapshot import folders_of, is_valid
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write.lease import Writer

PAGE = 2_000
LIST = "recorded_files"
# The data files of LIST with ``n_left``, their rows that are not deleted.
ROWS_LEFT = f"""(SELECT f.id, f.path, f.rows, f.rows - coalesce(d.rows, 0) AS n_left FROM {LIST} f
    LEFT JOIN {LIST} d ON d.id = f.id AND d.is_delete WHERE NOT f.is_delete)"""
_OWN = "__ducklake_metadata_lake.ducklake_"
_COLUMNS = "id, table_name, path, rows, size, sha256"
AT_ONCE = 1_000


class RecordedFile(NamedTuple):
    """A file as the catalog describes it.

    ``id`` is DuckLake's number of the data file; for a file of deleted rows that of the data file whose rows it
    deletes. ``path`` is relative to the data path. ``sha256`` has 64 or 32 hex digits, '' if none is recorded.
    """

    id: int
    table: str
    path: str
    rows: int
    size: int
    sha256: str


def count_files(lake: Lake) -> int:
    """Return the number of data files of the current snapshot, from DuckLake's own table."""
    return lake.metadata.read("SELECT count(*) FROM ducklake_data_file WHERE end_snapshot IS NULL")[0][0]


def list_files(lake: Lake) -> int:
    """Create the temporary table LIST of the current snapshot's files, and return their number."""
    lake.unchecked(f"CREATE OR REPLACE TEMP TABLE {LIST} AS SELECT row_number() OVER () AS n, * FROM ({_files(lake)})")
    return lake.unchecked(f"SELECT count(*) FROM {LIST}")[0][0]


def pages(lake: Lake) -> Iterator[list[RecordedFile]]:
    """Yield the files of LIST, PAGE at a time."""
    first = 1
    while rows := lake.unchecked(f"SELECT {_COLUMNS} FROM {LIST} WHERE n BETWEEN {first} AND {first + PAGE - 1}"):
        yield [RecordedFile(*row) for row in rows]
        first += PAGE


def files_of(lake: Lake, table: str) -> list[RecordedFile]:
    """Return the data files of one table in LIST."""
    of_table = f"table_name = '{table}' AND NOT is_delete"
    return [RecordedFile(*row) for row in lake.unchecked(f"SELECT {_COLUMNS} FROM {LIST} WHERE {of_table} ORDER BY n")]


def still_named(lake: Lake, ids: Iterable[int]) -> set[int]:
    """Return the data files among ``ids`` that the newest snapshot still has; others were merged or emptied."""
    if not (among := ", ".join(map(str, ids))):
        return set()
    sql = f"SELECT data_file_id FROM {_OWN}data_file WHERE end_snapshot IS NULL AND data_file_id IN ({among})"
    return {number for (number,) in lake.unchecked(sql)}


def whole_rows(lake: Lake, table: str, without: Collection[int]) -> str:
    """Return SQL for the rows in a table's files in LIST except the files ``without``; deleted rows count too.

    Reading the table itself would need all its files to be readable.
    """
    return _rows_of(lake, table, f"id NOT IN ({', '.join(map(str, without)) or -1})")


def _rows_of(lake: Lake, table: str, which: str) -> str:
    """Return SQL for the rows of those files of a table that meet a condition on LIST."""
    mine = f"SELECT path FROM {LIST} WHERE table_name = '{table}' AND NOT is_delete AND {which}"
    if not (paths := [quoted(lake.data_path + path) for (path,) in lake.unchecked(mine)]):
        return f"(SELECT * FROM {table} WHERE false)"
    return f"read_parquet([{', '.join(paths)}], union_by_name => true)"


def rows_of_their_own(lake: Lake, table: str, ids: Collection[int], out: Collection[int]) -> int:
    """Return how many rows of the data files ``ids`` the table would lack without the files ``out``."""
    columns = ", ".join(f'"{name}"' for name, *_ in lake.unchecked(f"DESCRIBE {table}"))
    theirs, left = _rows_of(lake, table, f"id IN ({', '.join(map(str, ids))})"), whole_rows(lake, table, out)
    sql = f"SELECT count(*) FROM (SELECT {columns} FROM {theirs} EXCEPT SELECT {columns} FROM {left})"
    return lake.unchecked(sql)[0][0]


def _files(lake: Lake) -> str:
    """Return SQL that lists the data files and the files of deleted rows of the current snapshot, as LIST has them."""
    data = f"""SELECT f.data_file_id AS id, false AS is_delete, table_name, folder || f.path AS path,
        record_count AS rows, file_size_bytes AS size FROM {_OWN}data_file f JOIN folders USING (table_id), s
        WHERE {is_valid("f")}"""
    deleted = f"""SELECT d.data_file_id, true, table_name, folder || d.path, delete_count, file_size_bytes
        FROM {_OWN}delete_file d JOIN folders USING (table_id), s WHERE {is_valid("d")}"""
    return f"""{folders_of()}
        SELECT f.*, coalesce(nullif(regexp_extract(f.path, '-([0-9a-f]{{32}})\\.parquet$', 1), ''), k.sha256, '')
        AS sha256 FROM ({data} UNION ALL {deleted}) f LEFT JOIN ({_digests(lake)}) k ON k.path = f.path
        ORDER BY table_name, f.path, id"""


def _digests(lake: Lake) -> str:
    """Return SQL for the digests of files without one in their name; the older table is read if it can be."""
    known = "SELECT path, sha256 FROM __ducklake_metadata_lake.pairmill_files"
    if not lake.metadata.has_checksums():
        known = "SELECT '' AS path, '' AS sha256 WHERE false"
    with suppress(duckdb.Error, PairmillError):  # the table's own files may be damaged
        lake.unchecked(f"SELECT count(sha256) FROM {WRITTEN}")
        known = f"{known} UNION ALL SELECT path, sha256 FROM {WRITTEN}"
    return f"SELECT path, any_value(sha256) AS sha256 FROM ({known}) GROUP BY path"


def retire(writer: Writer, ids: Sequence[int]) -> None:
    """Remove data files from the catalog whose rows cannot be read or count twice. Raises LeaseLost.

    DuckLake deletes rows only by reading their file. When a DELETE covers a whole file, DuckLake ends the file's row in
    its metadata with a new snapshot; this function makes the same changes without reading the file, for AT_ONCE files
    in each snapshot. A snapshot of the same moment still names the file, so that it stays on disk until a maintenance
    after SNAPSHOT_SECONDS, or a removal of rows.
    """
    for first in range(0, len(ids), AT_ONCE):
        _retire(writer, ids[first : first + AT_ONCE])


def _retire(writer: Writer, ids: Sequence[int]) -> None:
    """End some data files in one snapshot. Does nothing for files that have ended.

    A second registration of a file is deleted instead: the end of a row has its file removed from disk some day.
    """
    metadata = writer.lake.metadata
    among = f"data_file_id IN ({', '.join(map(str, ids))}) AND end_snapshot IS NULL"
    again = f"""SELECT f.data_file_id FROM ducklake_data_file f JOIN ducklake_data_file g ON g.table_id = f.table_id AND
        g.path = f.path AND g.data_file_id < f.data_file_id WHERE g.end_snapshot IS NULL AND f.end_snapshot IS NULL
        AND f.data_file_id IN ({", ".join(map(str, ids))})"""

    def body() -> None:
        writer.check()  # reads the lease row in this transaction: a takeover meanwhile makes it conflict
        doubled = ", ".join(str(number) for (number,) in metadata.read(again))
        for table in ("ducklake_data_file", "ducklake_delete_file", "ducklake_file_column_stats") if doubled else ():
            metadata.write(f"DELETE FROM {table} WHERE data_file_id IN ({doubled})")
        tables = metadata.read(f"SELECT DISTINCT table_id FROM ducklake_data_file WHERE {among} ORDER BY table_id")
        if not tables:
            return
        newest = metadata.read("SELECT max(snapshot_id) FROM ducklake_snapshot")[0][0]
        gone = ",".join(f"deleted_from_table:{table}" for (table,) in tables)
        for number, changes in ((newest + 1, ""), (newest + 2, gone)):  # the first names the files for some days
            metadata.write(f"""INSERT INTO ducklake_snapshot (snapshot_id, snapshot_time, schema_version,
                next_catalog_id, next_file_id) SELECT snapshot_id + 1, now(), schema_version, next_catalog_id,
                next_file_id FROM ducklake_snapshot WHERE snapshot_id = {number - 1}""")
            metadata.write(
                f"INSERT INTO ducklake_snapshot_changes (snapshot_id, changes_made) VALUES ({number}, '{changes}')"
            )
        for table in ("ducklake_data_file", "ducklake_delete_file"):
            metadata.write(f"UPDATE {table} SET end_snapshot = {newest + 2} WHERE {among}")

    metadata.retrying(body)
