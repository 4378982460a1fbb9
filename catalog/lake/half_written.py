"""Roll back the change of a SQLite catalog that a power cut or a kill left half written.

A lake that is being written has a write-ahead log, which a reader may read. When a catalog is made, opened, closed or
vacuumed, SQLite keeps the former pages in a rollback journal instead. If the process ends then, the journal must be
played back before anybody can read, and SQLite refuses that to a connection that may not write.
"""

import os
from contextlib import suppress

import duckdb

from pairmill.catalog.lake.folder_lock import FolderLock
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.lake.location import Location


def roll_back(connection: duckdb.DuckDBPyConnection, location: Location) -> None:
    """Play back the rollback journal of the catalog if there is one that no living process writes.

    SQLite itself decides that by its locks. Without the rights to write, nothing is done, and the read that follows
    says so.
    """
    if location.on_postgres or not os.path.exists(f"{location.metadata}-journal"):
        return
    with FolderLock(location.metadata), suppress(duckdb.Error):
        connection.execute(f"ATTACH {quoted(location.metadata)} AS half_written (TYPE sqlite)")
        try:
            connection.execute("SELECT count(*) FROM duckdb_tables() WHERE database_name = 'half_written'")
        finally:
            connection.execute("DETACH half_written")
