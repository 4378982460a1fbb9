"""Query and change a lake: DuckDB with a DuckLake catalog attached, with retries while other processes use it."""

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import duckdb

from pairmill.catalog.lake import snapshot
from pairmill.catalog.lake.busy_retry import retry_while_busy
from pairmill.catalog.lake.checksums import Checksums
from pairmill.catalog.lake.connection import attach_pinned, detach_pinned
from pairmill.catalog.lake.literals import with_literals
from pairmill.catalog.lake.location import Location
from pairmill.catalog.lake.metadata import Metadata
from pairmill.catalog.lake.stored_files import make_folder
from pairmill.catalog.terms.error import PairmillError

if TYPE_CHECKING:
    import pyarrow as pa  # 0.1 CPU s, which `sql` and `why` save

Result = TypeVar("Result")
# Each thread of a scan opens the SQLite catalog again, so a lake gets one thread until its largest table is large: a
# join takes 16 CPU ms with one thread, 25 with two, 135 with 64. At 1M images (11M candidates) a re-cut takes 2.8, 3.4
# and 5.1 CPU s. A second thread at 500,000 rows, the candidates of 2,500 images, made opening, commits and runs 1.3 to
# 1.4 times dearer from one night to the next.
ROWS_A_THREAD = 4_000_000
_WRITES = re.compile(r"\s*(INSERT|DELETE|UPDATE|CALL|COMMENT|ALTER|DROP|CREATE (?!.*\bTEMP\b))", re.IGNORECASE)
_CHANGES = re.compile(r'\s*(?:INSERT INTO|DELETE FROM|UPDATE)\s+"?(\w+)', re.IGNORECASE)


class Lake:
    """An open lake. ``uri`` is as the caller gave it; ``data_path`` is an absolute folder or S3 URL ending in a slash.

    Threads may share a lake: each statement, or a whole transaction, locks it. ``guard`` runs at the end of each
    transaction and aborts it by raising, as when a lease is no longer valid. ``settled`` runs after each commit.

    Methods raise PairmillError with the remedy (disk, permissions, network, busy for 60 s) and BadQuery for wrong SQL.
    """

    def __init__(
        self, location: Location, connection: duckdb.DuckDBPyConnection, metadata: Metadata, read_only: bool
    ) -> None:
        self._location = location
        self.uri = location.uri
        self.data_path = location.data_path
        self.connection = connection
        self.metadata = metadata
        self.read_only = read_only
        self.guard: Callable[[], None] = lambda: None
        self.settled: Callable[[], None] = lambda: None
        self._lock = threading.RLock()
        self._depth = 0
        self._changed: set[str] = set()  # tables changed by the current transaction
        self.largest = 0  # rows of the largest table
        self._threads = 1
        self._catalog = "lake"  # the attached catalog in which statements find tables
        self._finds_tables = True
        self.checksums = Checksums(self.unchecked, self.insert, metadata, location)
        self.reload_tables()

    def reload_tables(self) -> None:
        """Reload the lake's tables and their sizes: when the lake is opened, and after a migration."""
        self.tables, views = snapshot.tables_and_views(self.unchecked)
        self.views = frozenset(views)
        self.checksums.begin(self.tables, views)
        self.grow(snapshot.most_rows(self.unchecked))

    def grow(self, rows: int) -> None:
        """Add ``rows`` to the size of the largest table, which determines DuckDB's number of threads."""
        self.largest += rows
        threads = min(len(os.sched_getaffinity(0)), 1 + self.largest // ROWS_A_THREAD)
        if threads > self._threads:
            self._threads = threads
            self._run(lambda: self.connection.execute(f"SET threads = {threads}"))

    def unchecked(self, sql: str) -> list[tuple]:
        """Run a statement and return its rows without verifying the files of its tables."""
        return self._run(lambda: self.connection.execute(sql).fetchall())

    def query(self, sql: str, params: Sequence[Any] = ()) -> list[tuple]:
        """Run a statement and return its rows."""
        self.check_tables_of(sql)
        return self._run(lambda: self._execute(sql, params).fetchall())

    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Run a query and return its rows as dictionaries by column. Unlike `table`, this needs no pyarrow."""
        self.check_tables_of(sql)

        def body() -> list[dict[str, Any]]:
            found = self._execute(sql, params)
            names = [column[0] for column in found.description or ()]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

        return self._run(body)

    def table(self, sql: str, params: Sequence[Any] = ()) -> "pa.Table":
        """Run a query and return its result as an Arrow table."""
        self.check_tables_of(sql)
        return self._run(lambda: self._execute(sql, params).to_arrow_table())

    def blocks(self, sql: str, params: Sequence[Any] = (), *, rows: int) -> "pa.RecordBatchReader":
        """Stream a result larger than memory in batches of ``rows`` rows; run no other statement meanwhile."""
        self.check_tables_of(sql)
        return self._run(lambda: self._execute(sql, params).to_arrow_reader(rows))

    def execute(self, sql: str, params: Sequence[Any] = ()) -> None:
        """Run a statement without fetching a result."""
        self.check_tables_of(sql)
        if changes := _CHANGES.match(sql):
            self._changed.add(changes[1])
        self._run(lambda: self._execute(sql, params))

    def check_tables_of(self, sql: str) -> None:
        """Verify the files of every table named in ``sql``, once per process. Raise Damaged."""
        with self._lock:
            if self._finds_tables:
                self.checksums.check_tables_of(sql)

    def check_files(self, table: str) -> None:
        """Verify the files of ``table``, once per process, for callers that open them by path. Raise Damaged."""
        with self._lock:
            self.checksums.check(table)

    def insert(self, table: str, rows: "pa.Table") -> None:
        """Append ``rows`` to ``table`` by column name."""
        self._changed.add(table)

        def body() -> None:
            self.connection.register("inserted_rows", rows)
            try:
                self._execute(f'INSERT INTO "{table}" BY NAME SELECT * FROM inserted_rows')
            finally:
                self.connection.unregister("inserted_rows")

        self._run(body)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the body in one transaction without retries; a nested transaction joins the outer. See `retrying`."""
        with self._lock, self.metadata.undisturbed() if self._depth == 0 else nullcontext():
            outermost = self._depth == 0
            if outermost:
                self._changed.clear()
                self.connection.execute("BEGIN")
            self._depth += 1
            try:
                yield
                if outermost:
                    self.checksums.record_written(self._changed & self.tables)
                    self.guard()
                    with self.metadata.changing():
                        self.connection.execute("COMMIT")
                    self.settled()
            except BaseException:
                if outermost:
                    with suppress(duckdb.Error):
                        self.connection.execute("ROLLBACK")
                raise
            finally:
                self._depth -= 1

    def retrying(self, body: Callable[[], Result]) -> Result:
        """Run ``body`` in a transaction and return its result; retry all of it after a lock or a conflicting commit.

        On SQLite, whoever has read anything conflicts with every commit since, whatever its tables.
        """

        def once() -> Result:
            with self.transaction():
                return body()

        return self._run(once)

    def execute_all(self, statements: Iterable[str]) -> None:
        """Run statements in one transaction, with the retries of `retrying`."""
        self.retrying(lambda: [self.execute(each) for each in statements])

    @contextmanager
    def one_snapshot(self) -> Iterator[None]:
        """Pin all reads of the `with` block to the current snapshot; the block must not write.

        For small results; `pinned` is for large ones. The lease row, in the metadata database, is not pinned.
        """

        def begin() -> None:
            try:
                self.connection.execute("BEGIN")
                self.connection.execute("SELECT id FROM ducklake_current_snapshot('lake')").fetchall()
            except BaseException:
                with suppress(duckdb.Error):
                    self.connection.execute("ROLLBACK")
                raise

        with self._lock:
            self._run(begin)
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                with suppress(duckdb.Error):
                    self.connection.execute("ROLLBACK")

    def one_snapshot_if_small(self) -> AbstractContextManager[None]:
        """Return `one_snapshot` for a small lake, whose connection has one thread; do nothing for a larger one.

        It saves 3 CPU ms a statement. In a transaction DuckDB reads temporary tables that were written in it by one
        thread, which would slow the joins of a large lake.
        """
        return self.one_snapshot() if self._threads == 1 and self._depth == 0 else nullcontext()

    @contextmanager
    def pinned(self) -> Iterator[str]:
        """Pin reads to the current snapshot while others commit; yield the name of the attached catalog.

        A transaction would pin the snapshot too, but reads rows written inside it with one thread: writing 10M rows out
        of a temporary table takes 28 s instead of 14.
        """
        name = "pinned"
        with self._lock:
            try:
                self._run(lambda: attach_pinned(self.connection, self._location, name))
                self._catalog = name
                yield name
            finally:
                self._catalog = "lake"
                self._run(lambda: detach_pinned(self.connection, name))

    @contextmanager
    def without_tables(self) -> Iterator[None]:
        """Hide the lake's tables in the `with` block: its statements use temporary tables and attached files only.

        DuckDB looks for each function and each dropped table in the lake first, for which DuckLake reads its newest
        snapshot: a small statement takes 4 CPU ms, and 0.5 in the body; `insert` takes 20 and 3.5.
        """
        with self._lock:
            try:
                self._run(lambda: self.connection.execute("USE memory"))
                self._finds_tables = False
                yield
            finally:
                self._finds_tables = True
                self._run(lambda: self.connection.execute(f"USE {self._catalog}"))

    def staging(self, table: str, run_id: str) -> str:
        """Return the folder or S3 prefix (no slash at the end) for a run's files of ``table``; create it if local."""
        folder = f"{self.data_path}main/{table}/{run_id}"
        if not folder.startswith("s3://"):
            self._run(lambda: make_folder(folder))
        return folder

    def close(self) -> None:
        """Record the digests of new files, detach the lake and close both connections."""
        if not self.read_only:
            with suppress(duckdb.Error, OSError, PairmillError):
                self.checksums.record()
        with suppress(duckdb.Error):
            self.connection.execute("USE memory; DETACH lake")
        self.metadata.close()
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _execute(self, sql: str, params: Sequence[Any] = ()) -> duckdb.DuckDBPyConnection:
        """Execute a statement, with literals in place of parameters where possible.

        If it writes and commits by itself, the catalog's seal is renewed around it; in a transaction, around COMMIT.
        """
        sql, params = with_literals(sql, params)
        with nullcontext() if self._depth or not _WRITES.match(sql) else self.metadata.changing():
            return self.connection.execute(sql, params) if params else self.connection.execute(sql)

    def _run(self, body: Callable[[], Result]) -> Result:
        """Run ``body`` and retry while the catalog is busy, after waits of 0.02 to 3 s (`busy_retry.py`)."""
        with self._lock:
            return retry_while_busy(body, self.uri, is_inside=self._depth > 0, doublings=6)
