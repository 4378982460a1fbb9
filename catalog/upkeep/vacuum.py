"""Remove traces of deleted rows from the catalog's own database: free pages, and values in column statistics.

DuckLake's statistics, the smallest and largest value of each column, outlive the rows with these values. DuckDB skips
values beyond these bounds when it plans a query, so bounds must never be too narrow. A bound that is not known for
certain becomes one that no value exceeds. It is not set to NULL: with the next rows that DuckLake inserts, their values
would become the bounds, and queries would leave out the older rows.
"""

import subprocess
import sys
from dataclasses import dataclass

import duckdb

from pairmill.catalog.lake.connection import connect
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.lake.location import locate
from pairmill.catalog.write.lease import Writer

# A quarter of the pages is free after some nights of expired snapshots; to rewrite 1 GB takes 10 s.
FREE_SHARE, SMALLEST_BYTES = 0.25, 1_000_000
SECONDS = 3_600
# A process of its own: two SQLite libraries in one process drop each other's locks (see `catalog.lake.metadata`).
_SCRIPT = """
import os, sqlite3, sys
path, share, smallest = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
connection = sqlite3.connect(path, timeout=5)
pages, = connection.execute("PRAGMA page_count").fetchone()
free, = connection.execute("PRAGMA freelist_count").fetchone()
size, = connection.execute("PRAGMA page_size").fetchone()
if free > share * pages and pages * size > smallest:
    try:
        connection.execute("VACUUM")
        # Beside a reader VACUUM succeeds in the write-ahead log alone: the old pages would stay in the catalog's file.
        busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.OperationalError as error:
        sys.exit(str(error))
    if busy:
        sys.exit("another process reads it")
    print(pages * size, (pages - free) * size)
"""
LEAST, MOST = "", "\U0010ffff" * 2  # no text is smaller, and none that is made of characters is larger
# The widest bounds of DuckLake's types of numbers and times.
_WIDEST = {
    "boolean": ("0", "1"),
    **{f"int{bits}": (str(-(2 ** (bits - 1))), str(2 ** (bits - 1) - 1)) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": ("0", str(2**bits - 1)) for bits in (8, 16, 32, 64)},
    "float32": ("-inf", "inf"),
    "float64": ("-inf", "inf"),
    "timestamptz": ("-infinity", "infinity"),
}
# A file without bounds that has values makes both bounds unknown, and so does a file without a row of the column.
_IS_UNKNOWN = (
    "(count(*) < any_value(n.files) OR bool_or(s.min_value IS NULL AND f.record_count > coalesce(s.null_count, 0)))"
)
_FILES = "SELECT table_id, count(*) AS files FROM ducklake_data_file WHERE end_snapshot IS NULL GROUP BY table_id"
_BOUNDS = f"""SELECT s.table_id, s.column_id, CASE WHEN NOT {_IS_UNKNOWN} THEN min(s.min_value) END AS low,
    CASE WHEN NOT {_IS_UNKNOWN} THEN max(s.max_value) END AS high FROM ducklake_file_column_stats s
    JOIN ducklake_data_file f USING (data_file_id, table_id) JOIN ({_FILES}) n USING (table_id)
    WHERE f.end_snapshot IS NULL GROUP BY ALL"""
_STATISTICS = "ducklake_table_column_stats"
_INLINED = "SELECT table_id FROM ducklake_inlined_data_tables"
_TEXTS = f"""SELECT DISTINCT c.table_id, c.column_id, c.table_id IN ({_INLINED}) AS is_inlined
    FROM ducklake_column c JOIN ducklake_table t USING (table_id) WHERE c.end_snapshot IS NULL
    AND t.end_snapshot IS NULL AND c.column_type = 'varchar'"""
_CERTAIN, _KEY = "CASE WHEN NOT is_inlined THEN", "c.table_id, c.column_id"


@dataclass(frozen=True)
class Vacuumed:
    """Bytes of the catalog before and after, both 0 if nothing was done; ``why`` names the hindrance, or ''."""

    before: int = 0
    after: int = 0
    why: str = ""


def vacuum(writer: Writer, even_if_few: bool = False) -> Vacuumed:
    """Rewrite the catalog's database if FREE_SHARE of its pages are free, or in any case if ``even_if_few``.

    Postgres reuses free pages itself. SQLite needs the catalog's size in free disk space, and refuses while another
    process reads; a kill leaves the catalog as it was. Raises LeaseLost.
    """
    location = locate(writer.lake.uri)
    if location.on_postgres:
        return Vacuumed(why=_rewrite_postgres(location.metadata) if even_if_few else "")
    writer.check()
    least = ("-1", "0") if even_if_few else (str(FREE_SHARE), str(SMALLEST_BYTES))
    command = [sys.executable, "-I", "-c", _SCRIPT, location.metadata, *least]
    with writer.lake.metadata.changing():
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode:
        return Vacuumed(why=(done.stderr.strip().splitlines() or ["it was killed"])[-1])
    before, after = map(int, done.stdout.split() or ("0", "0"))
    return Vacuumed(before, after)


def _rewrite_postgres(url: str) -> str:
    """Rewrite the lake's tables in Postgres, so that no page holds deleted rows; return what hindered it, or ''."""
    wait = f"{'&' if '?' in url else '?'}options=-c%20lock_timeout%3D10s"
    connection = connect("postgres_scanner")
    try:
        connection.execute(f"ATTACH {quoted(url + wait)} AS catalog_of_lake (TYPE postgres)")
        names = """SELECT schemaname, tablename FROM pg_tables WHERE
            tablename LIKE ''ducklake%'' OR tablename LIKE ''pairmill%''"""
        tables = connection.execute(f"SELECT * FROM postgres_query('catalog_of_lake', '{names}')").fetchall()
        for schema, table in tables:
            rewrite = f'VACUUM FULL "{schema}"."{table}"'
            connection.execute(f"CALL postgres_execute('catalog_of_lake', '{rewrite}', use_transaction => false)")
    except duckdb.Error as error:
        return str(error).splitlines()[0]
    finally:
        connection.close()
    return ""


def refresh_statistics(writer: Writer) -> None:
    """Recompute the bounds of text columns from those of their files; set bounds of numbers to their type's range.

    A text column gets LEAST and MOST if the bounds of its files are unknown: in tables that may have rows in the
    metadata database, and after `thin` has deleted them. In such tables known bounds of numbers stay: one of them is
    the schema version. Call this last: a connection of DuckLake keeps the bounds that it has read. Raises LeaseLost.
    """
    metadata = writer.lake.metadata

    def body() -> None:
        writer.check()
        texts = f"({_TEXTS}) c LEFT JOIN ({_BOUNDS}) b USING (table_id, column_id)"
        low, high = (
            f"coalesce({_CERTAIN} {name} END, {quoted(widest)}) AS {name}"
            for name, widest in (("low", LEAST), ("high", MOST))
        )
        metadata.write(f"CREATE OR REPLACE TEMP TABLE text_bounds AS SELECT {_KEY}, {low}, {high} FROM {texts}")
        metadata.write(f"""UPDATE {_STATISTICS} SET min_value = b.low, max_value = b.high FROM text_bounds b
            WHERE {_STATISTICS}.table_id = b.table_id AND {_STATISTICS}.column_id = b.column_id""")
        for kind, bounds in _WIDEST.items():
            sql = f"""UPDATE {_STATISTICS} SET min_value = ?, max_value = ? WHERE (table_id, column_id) IN
                (SELECT table_id, column_id FROM ducklake_column WHERE end_snapshot IS NULL AND column_type = ?)
                AND (min_value IS NULL OR table_id NOT IN ({_INLINED}))"""
            metadata.write(sql, (*bounds, kind))

    metadata.retrying(body)
