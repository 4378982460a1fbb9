"""Return the free pages of a SQLite catalog to the file system."""

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


@dataclass(frozen=True)
class Vacuumed:
    """Bytes of the catalog before and after, both 0 if nothing was done; ``why`` says what hindered it."""

    before: int = 0
    after: int = 0
    why: str = ""


def vacuum(writer: Writer, even_if_few: bool = False) -> Vacuumed:
    """Rewrite the catalog if FREE_SHARE of its pages are free, or ``even_if_few``.

    Postgres reuses free pages itself, so it rewrites the tables only ``even_if_few``.

    SQLite needs the catalog's size in free disk space, and refuses while another process reads; a kill leaves the
    catalog as it was. Raises LeaseLost.
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
        names = (
            "SELECT schemaname, tablename FROM pg_tables WHERE "
            "tablename LIKE ''ducklake%'' OR tablename LIKE ''pairmill%''"
        )
        tables = connection.execute(f"SELECT * FROM postgres_query('catalog_of_lake', '{names}')").fetchall()
        for schema, table in tables:
            rewrite = f'VACUUM FULL "{schema}"."{table}"'
            connection.execute(f"CALL postgres_execute('catalog_of_lake', '{rewrite}', use_transaction => false)")
    except duckdb.Error as error:
        return str(error).splitlines()[0]
    finally:
        connection.close()
    return ""
