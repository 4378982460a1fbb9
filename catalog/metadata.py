"""The metadata database itself, beside DuckLake's own tables: one row for the lease, reached without a snapshot.

Statements use ``:name`` parameters and SQL that SQLite and Postgres share; each one is a transaction of its own.
"""

import re
import sqlite3
import threading
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Protocol

import duckdb

from catalog.attach import connect, quoted
from catalog.location import Location

Values = Mapping[str, str | int | float]
BUSY_SECONDS = 30.0

LEASE_TABLE = """CREATE TABLE IF NOT EXISTS pairmill_lease (slot INTEGER PRIMARY KEY, token TEXT, holder TEXT,
host TEXT, pid INTEGER, started DOUBLE PRECISION, run_id TEXT, purpose TEXT, heartbeat TEXT, expires TEXT)"""


class Metadata(Protocol):
    def write(self, sql: str, values: Values) -> None: ...
    def read(self, sql: str, values: Values) -> list[tuple]: ...
    def has_lake(self) -> bool: ...
    def close(self) -> None: ...


def open_metadata(location: Location, read_only: bool) -> Metadata:
    if location.on_postgres:
        return PostgresMetadata(location.metadata, read_only)
    return SqliteMetadata(location.metadata, read_only)


class SqliteMetadata:
    """A connection a statement: nothing is held open between heartbeats, and any thread may call."""

    def __init__(self, path: str, read_only: bool) -> None:
        self.path = path
        self.read_only = read_only
        if read_only:
            return
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        # In SQLite's default journal two readers that open the lake again and again starve each other and a committer
        # (6 reads in 6 s beside 20 commits, measured); with a write-ahead log the same gives 150 reads, 430 commits.
        self._journal("wal", BUSY_SECONDS)
        self.write(LEASE_TABLE, {})

    def write(self, sql: str, values: Values) -> None:
        with closing(sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(sql, dict(values))
            connection.execute("COMMIT")

    def read(self, sql: str, values: Values) -> list[tuple]:
        uri = Path(self.path).as_uri() + "?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS)) as connection:
            return connection.execute(sql, dict(values)).fetchall()

    def has_lake(self) -> bool:
        if not Path(self.path).is_file():
            return False
        return bool(self.read("SELECT 1 FROM sqlite_master WHERE name = 'ducklake_metadata'", {}))

    def close(self) -> None:
        """Leave one plain file behind (copied as it is, read from a read-only disk), unless others have it open."""
        if not self.read_only:
            self._journal("delete", 0.0)

    def _journal(self, mode: str, seconds: float) -> None:
        try:
            with closing(sqlite3.connect(self.path, timeout=seconds, isolation_level=None)) as connection:
                connection.execute(f"PRAGMA journal_mode = {mode}").fetchall()
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise


class PostgresMetadata:
    """Through DuckDB's own Postgres client; libpq reads PGPASSWORD and ~/.pgpass."""

    def __init__(self, url: str, read_only: bool) -> None:
        self._lock = threading.Lock()
        self._connection: duckdb.DuckDBPyConnection = connect("postgres_scanner")
        option = "TYPE postgres, READ_ONLY" if read_only else "TYPE postgres"
        self._connection.execute(f"ATTACH {quoted(url)} AS metadata ({option})")
        if not read_only:
            self.write(LEASE_TABLE, {})

    def write(self, sql: str, values: Values) -> None:
        with self._lock:
            self._connection.execute("CALL postgres_execute('metadata', ?)", [_with_literals(sql, values)])

    def read(self, sql: str, values: Values) -> list[tuple]:
        with self._lock:
            return self._connection.execute(
                "SELECT * FROM postgres_query('metadata', ?)", [_with_literals(sql, values)]
            ).fetchall()

    def has_lake(self) -> bool:
        sql = "SELECT 1 FROM information_schema.tables WHERE table_name = 'ducklake_metadata'"
        return bool(self.read(sql, {}))

    def close(self) -> None:
        with self._lock:
            self._connection.close()


def _with_literals(sql: str, values: Values) -> str:
    def literal(match: re.Match[str]) -> str:
        value = values[match[1]]
        return quoted(value) if isinstance(value, str) else repr(value)

    return re.sub(r"(?<!:):([a-z_]+)\b", literal, sql)
