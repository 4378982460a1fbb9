"""List the tables, views and files of a lake's snapshot from DuckLake's own tables in the metadata database.

DuckDB's `duckdb_tables()` reads the statistics of every table for that (35 to 380 ms), and `ducklake_list_files` takes
7 to 25 ms per table; one SELECT here takes 2 to 3. All rows carry the snapshots between which they are valid, so the
result is what the current transaction sees, whatever others commit meanwhile. Its own changes are not yet included.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

Query = Callable[[str], list[tuple]]


class DataFile(NamedTuple):
    """A data file of a table, and the file that lists its deleted rows, or None.

    Paths are relative to the lake's data path.
    """

    table: str
    data_file: str
    delete_file: str | None


class RowCounts(NamedTuple):
    """Rows of a table, those of commits after a given one, and its newest commit, which may be that of a deleted row.

    ``new`` is -1 if only reading tells, as a file has rows of both sides.
    """

    rows: int
    new: int
    newest: int


def tables_and_views(query: Query, catalog: str = "lake") -> tuple[set[str], dict[str, str]]:
    """Return the names of the tables of schema main, and its views as name -> SQL."""
    rows = query(f"""{_snapshot(catalog)} SELECT table_name, NULL FROM {_own(catalog, "table")} t, s
        WHERE {is_valid("t")} UNION ALL SELECT view_name, sql FROM {_own(catalog, "view")} v, s
        WHERE {is_valid("v")}""")
    return {name for name, sql in rows if sql is None}, {name: sql for name, sql in rows if sql is not None}


def columns(query: Query, catalog: str = "lake") -> dict[str, dict[str, str]]:
    """Return the columns of each table with DuckLake's names of their types: `int32` for INTEGER, `list` for lists."""
    found: dict[str, dict[str, str]] = {}
    rows = query(f"""{_snapshot(catalog)} SELECT table_name, column_name, column_type FROM {_own(catalog, "column")} c
        JOIN {_own(catalog, "table")} t USING (table_id), s
        WHERE {is_valid("c")} AND {is_valid("t")} AND parent_column IS NULL""")
    for table, column, kind in rows:
        found.setdefault(table, {})[column] = kind
    return found


def files(query: Query, tables: Iterable[str] = (), catalog: str = "lake") -> list[DataFile]:
    """Return the files of ``tables``, or of all tables, sorted by table and path."""
    return [DataFile(*row) for row in query(f"{files_sql(tables, catalog)} ORDER BY ALL")]


def files_sql(tables: Iterable[str], catalog: str = "lake") -> str:
    """Return the SQL of `files`, whose columns are table_name, data_file and delete_file."""
    return f"""{folders_of(tables, catalog)}, deletes AS
        (SELECT data_file_id, d.path FROM {_own(catalog, "delete_file")} d, s WHERE {is_valid("d")})
        SELECT table_name, folder || f.path AS data_file, folder || d.path AS delete_file
        FROM {_own(catalog, "data_file")} f JOIN folders USING (table_id) LEFT JOIN deletes d USING (data_file_id),
        s WHERE {is_valid("f")}"""


def folders_of(tables: Iterable[str] = (), catalog: str = "lake") -> str:
    """Return the SQL of CTEs: ``s`` as `_snapshot` has it, and ``folders`` of ``tables``, relative to the data path."""
    among = ", ".join(f"'{table}'" for table in tables)
    return f"""{_snapshot(catalog)}, folders AS (SELECT table_id, table_name, h.path || t.path AS folder
        FROM {_own(catalog, "table")} t JOIN {_own(catalog, "schema")} h USING (schema_id), s
        WHERE {is_valid("t")} AND {is_valid("h")}{f" AND table_name IN ({among})" if among else ""})"""


def rows_since(query: Query, tables: Sequence[str], upto: int, catalog: str) -> dict[str, RowCounts]:
    """Return the numbers of rows of ``tables`` without reading a file."""
    among = ", ".join(f"'{table}'" for table in tables)
    is_whole = "coalesce(greatest(f.partial_max, deletes.partial_max), 0) <= s.id"  # it has no rows of later snapshots
    rows = query(f"""{_snapshot(catalog)},
        deletes AS (SELECT data_file_id, delete_count, partial_max FROM {_own(catalog, "delete_file")} d, s
        WHERE {is_valid("d")}), commits AS (SELECT data_file_id, CAST(min_value AS BIGINT) AS oldest,
        CAST(max_value AS BIGINT) AS newest FROM {_own(catalog, "file_column_stats")}
        JOIN {_own(catalog, "column")} c USING (table_id, column_id), s
        WHERE column_name = 'commit' AND {is_valid("c")})
        SELECT table_name, sum(n), CASE WHEN bool_and(coalesce(is_whole AND (oldest > upto OR newest <= upto),
        false)) THEN coalesce(sum(n) FILTER (oldest > upto), 0) ELSE -1 END, coalesce(max(newest), 0)
        FROM (SELECT table_name, record_count - coalesce(delete_count, 0) AS n, oldest, newest, {upto} AS upto,
        {is_whole} AS is_whole FROM {_own(catalog, "data_file")} f JOIN {_own(catalog, "table")} t USING (table_id)
        LEFT JOIN deletes USING (data_file_id) LEFT JOIN commits USING (data_file_id), s
        WHERE {is_valid("f")} AND {is_valid("t")} AND table_name IN ({among})) GROUP BY table_name""")
    return dict.fromkeys(tables, RowCounts(0, 0, 0)) | {table: RowCounts(*map(int, found)) for table, *found in rows}


def current_snapshot(query: Query, catalog: str = "lake") -> int:
    """Return the number of the snapshot that is read now."""
    return query(f"SELECT id FROM ducklake_current_snapshot('{catalog}')")[0][0]


def _snapshot(catalog: str) -> str:
    """Return the SQL of a CTE ``s`` with the id of the current snapshot."""
    return f"WITH s AS (SELECT id FROM ducklake_current_snapshot('{catalog}'))"


def _own(catalog: str, table: str) -> str:
    """Return the qualified name of one of DuckLake's own tables."""
    return f"__ducklake_metadata_{catalog}.ducklake_{table}"


def is_valid(alias: str) -> str:
    """Return the SQL condition that a row is valid in snapshot ``s``."""
    return f"{alias}.begin_snapshot <= s.id AND ({alias}.end_snapshot IS NULL OR {alias}.end_snapshot > s.id)"


def is_small(query: Query, most: int, catalog: str = "lake") -> bool:
    """Return whether the lake has at most ``most`` files, those of deletes and older snapshots included.

    It counts, 1 ms per 1,000 files, if more than that and fewer than ten times as many were ever added.
    """
    own = _own(catalog, "snapshot")
    ever = query(f"{_snapshot(catalog)} SELECT max(next_file_id) FROM {own} n, s WHERE n.snapshot_id = s.id")[0][0] or 0
    if not most < ever <= 10 * most:
        return ever <= most
    counts = (f"(SELECT count(*) FROM {_own(catalog, table)})" for table in ("data_file", "delete_file"))
    return query(f"SELECT {' + '.join(counts)}")[0][0] <= most


def largest(query: Query, table: str, catalog: str = "lake") -> dict[str, str]:
    """Return the largest value that each column of a table ever had, as text; {} if there is no such table.

    By DuckLake's statistics: 2 ms, 20 at the first read of a table whose rows are in the metadata database.
    """
    rows = query(f"""SELECT column_name, max_value FROM {_own(catalog, "table_column_stats")}
        JOIN {_own(catalog, "table")} t USING (table_id) JOIN {_own(catalog, "column")} c USING (table_id, column_id)
        WHERE table_name = '{table}' AND max_value IS NOT NULL
        AND t.end_snapshot IS NULL AND c.end_snapshot IS NULL""")
    return dict(rows)


def newest_file(query: Query, catalog: str = "lake") -> str | None:
    """Return the current snapshot's newest data file, relative to the data path; None if there is no file."""
    rows = query(f"""{folders_of((), catalog)} SELECT folder || f.path FROM {_own(catalog, "data_file")} f
        JOIN folders USING (table_id), s WHERE {is_valid("f")} ORDER BY data_file_id DESC LIMIT 1""")
    return rows[0][0] if rows else None


def most_rows(query: Query, catalog: str = "lake") -> int:
    """Return the number of rows of the largest table."""
    return query(f"SELECT max(record_count) FROM {_own(catalog, 'table_stats')}")[0][0] or 0
