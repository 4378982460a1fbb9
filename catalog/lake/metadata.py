"""Read and write the metadata database directly: the lease row beside DuckLake's own tables, without a snapshot.

Only DuckDB's own SQLite is used, never Python's. With two SQLite libraries in one process, closing a file in one
library drops the locks of the other and removes its write-ahead log (seen here: a crash or a hang within 30 commits).
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb

from pairmill.catalog.lake import seal
from pairmill.catalog.lake.busy_retry import retry_while_busy
from pairmill.catalog.lake.literals import quoted, with_literals
from pairmill.catalog.lake.location import Location
from pairmill.catalog.terms.error import PairmillError

if TYPE_CHECKING:
    import pyarrow as pa

LEASE_TABLE = """CREATE TABLE IF NOT EXISTS pairmill_lease (slot INTEGER PRIMARY KEY, token VARCHAR, holder VARCHAR,
host VARCHAR, pid INTEGER, started DOUBLE, run_id VARCHAR, purpose VARCHAR, heartbeat VARCHAR, expires VARCHAR,
waiting VARCHAR)"""
# Holders on other machines whose lease was taken over; created with its first row, see catalog.lake.lease_row.
FORMER = "pairmill_former_holders"
FORMER_TABLE = f"CREATE TABLE IF NOT EXISTS {FORMER} AS SELECT * FROM pairmill_lease WHERE false"
FILES_TABLE = "CREATE TABLE IF NOT EXISTS pairmill_files (path VARCHAR PRIMARY KEY, sha256 VARCHAR, stamp VARCHAR)"
# Created with its first row, because no run needs the empty table; see catalog.write.finished.
FINISHED = "pairmill_finished"
FINISHED_TABLE = f"""CREATE TABLE IF NOT EXISTS {FINISHED} (request VARCHAR PRIMARY KEY, inputs VARCHAR, state VARCHAR,
dataset VARCHAR, version INTEGER, notes VARCHAR, run_id VARCHAR, finished VARCHAR)"""
# Created with its first row; see catalog.write.version_names.
VERSION_NAMES = "pairmill_version_names"
VERSION_NAMES_TABLE = f"""CREATE TABLE IF NOT EXISTS {VERSION_NAMES} (dataset VARCHAR, name VARCHAR, version INTEGER,
named VARCHAR, PRIMARY KEY (dataset, name))"""
# Created with its first row; see catalog.pending.asked_shards.
ASKED = "pairmill_asked"
ASKED_TABLE = f"""CREATE TABLE IF NOT EXISTS {ASKED} (list VARCHAR PRIMARY KEY, "commit" BIGINT, marks BLOB,
"at" VARCHAR)"""
Result = TypeVar("Result")


class Metadata:
    """A second connection (a cursor of the lake's DuckDB) to the SQLite or Postgres database. Thread-safe.

    Both databases refuse a transaction if another one changed the rows that it read, so read, decide, write is atomic.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, location: Location, read_only: bool) -> None:
        self._location = location
        self._read_only = read_only
        self._lock = threading.RLock()
        self._in_transaction = False
        self._transaction = threading.Lock()  # held during a transaction of the lake's own connection on SQLite
        self._connection = connection.cursor()
        self._seal = None if read_only or location.on_postgres else seal.Seal(location)
        if location.on_postgres:
            self._attach("TYPE postgres")
        else:
            if not read_only:
                Path(location.metadata).parent.mkdir(parents=True, exist_ok=True)
            # With SQLite's default journal, two readers that keep reopening the lake starve each other and a committer
            # (6 reads in 6 s beside 20 commits, measured); a write-ahead log gives 150 reads, 430 commits. A reader of
            # a closed catalog (rows in a pager) blocks the change of the journal: DuckDB waits 5 s, then it is retried.
            mode = "TYPE sqlite" if read_only else "TYPE sqlite, JOURNAL_MODE 'wal'"
            self._retrying(lambda: self._attach(mode))
        if not read_only and not (self.has("pairmill_lease") and self.has_checksums()):
            for statement in (LEASE_TABLE, FILES_TABLE):
                self.write(statement)

    def read(self, sql: str, params: Sequence[Any] = ()) -> list[tuple]:
        """Run a statement and return its rows; retry for 60 s while the database is locked. Raise PairmillError."""
        return self._retrying(lambda: self._execute(sql, params).fetchall())

    def write(self, sql: str, params: Sequence[Any] = ()) -> None:
        """Run a statement that changes the database, with retries as in `read`."""

        def once() -> None:
            with self.changing():
                self._execute(sql, params)

        self._retrying(once)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Run the body as a change of the database, by any connection: remove the seal before it, renew it after."""
        if self._seal is None or self._in_transaction:
            yield
        else:
            with self._seal.broken():
                yield

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Run the `with` block, a transaction of the lake, between heartbeats of this process; one waits for the other.

        On SQLite a transaction that has read conflicts with any commit since, so one of more than 20 s would always
        conflict with a heartbeat of its own process. Postgres compares rows, and its heartbeats go on.
        """
        with nullcontext() if self._location.on_postgres else self._transaction:
            yield

    def retrying(self, body: Callable[[], Result]) -> Result:
        """Run ``body`` (reads and writes) in a transaction; retry for 60 s while other transactions conflict."""

        def once() -> Result:
            self._connection.execute("BEGIN")
            self._in_transaction = True
            try:
                result = body()
                with self._seal.broken() if self._seal else nullcontext():
                    self._connection.execute("COMMIT")
                return result
            except BaseException:
                with suppress(duckdb.Error):
                    self._connection.execute("ROLLBACK")
                raise
            finally:
                self._in_transaction = False

        return self._retrying(once)

    def replace(self, table: str, key: str, rows: "pa.Table") -> None:
        """Insert ``rows`` into ``table``, replacing rows with the same ``key``."""

        def body() -> None:
            self._connection.register("new_rows", rows)
            try:
                self._connection.execute(f"DELETE FROM {table} WHERE {key} IN (SELECT {key} FROM new_rows)")
                self._connection.execute(f"INSERT INTO {table} SELECT * FROM new_rows")
            finally:
                self._connection.unregister("new_rows")

        self.retrying(body)

    def has_lake(self) -> bool:
        """Return whether the database has DuckLake's tables."""
        return self.has("ducklake_metadata")

    def has_checksums(self) -> bool:
        """Return whether the database has the table of file digests, which the first opening for writing creates."""
        return self.has("pairmill_files")

    def has(self, table: str) -> bool:
        """Return whether the database has ``table``. Some tables are only created for their first row.

        `duckdb_tables()` would read the statistics of every table.
        """

        def once() -> bool:
            try:
                self._connection.execute(f"SELECT 1 FROM pairmill_metadata.{table} LIMIT 0")
            except duckdb.CatalogException:
                return False
            return True

        return self._retrying(once)

    def close(self) -> None:
        """Close the connection, after the lake is detached.

        Unless others use the database, SQLite's write-ahead log is merged into the one file, which is then sealed. The
        file can then be copied as it is and read from a read-only disk.
        """
        plain = not self._read_only and not self._location.on_postgres
        with self._lock, suppress(duckdb.Error, OSError, PairmillError):
            if plain and not self.read("SELECT 1 FROM pairmill_lease"):
                with seal.closing(self._location):
                    self._connection.execute("USE memory; DETACH pairmill_metadata")
                    self._attach("TYPE sqlite, JOURNAL_MODE 'delete', BUSY_TIMEOUT 0")
                    self._connection.execute("SELECT 1 FROM pairmill_lease")
                    self._connection.execute("USE memory; DETACH pairmill_metadata")
        self._connection.close()

    def _attach(self, options: str) -> None:
        """ATTACH the metadata database with ``options`` and USE it."""
        options += ", READ_ONLY" if self._read_only else ""
        self._connection.execute("DETACH DATABASE IF EXISTS pairmill_metadata")  # of an attempt that met a lock
        self._connection.execute(f"ATTACH {quoted(self._location.metadata)} AS pairmill_metadata ({options})")
        self._connection.execute("USE pairmill_metadata")

    def _execute(self, sql: str, params: Sequence[Any]) -> duckdb.DuckDBPyConnection:
        """Execute a statement, with literals in place of parameters where possible."""
        sql, params = with_literals(sql, params)
        return self._connection.execute(sql, params) if params else self._connection.execute(sql)

    def _retrying(self, body: Callable[[], Result]) -> Result:
        """Run ``body`` and retry while the database is busy; within a transaction nothing is retried."""
        with self._lock:
            return retry_while_busy(body, self._location.uri, is_inside=self._in_transaction, doublings=1)
