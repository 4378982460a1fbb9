"""The lake: DuckDB with a DuckLake catalog attached, and the manners for a catalog that others read and write too."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self, TypeVar

import duckdb
import pyarrow as pa

from catalog.lake.attach import attach_pinned, detach_pinned
from catalog.lake.location import Location
from catalog.lake.metadata import Metadata
from catalog.lake.patience import patiently

Result = TypeVar("Result")


class Lake:
    """``uri`` as given, ``data_path`` an absolute folder or s3 URL ending in a slash, ``connection`` DuckDB's, using
    the lake. Threads may share a lake: a statement, or a whole transaction, has it to itself. ``guard`` runs at the end
    of each of `retrying`'s transactions and may refuse it: under a lease it asks whether that holds."""

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
        self._lock = threading.RLock()
        self._depth = 0

    def query(self, sql: str, params: Sequence[Any] = ()) -> list[tuple]:
        return self._run(lambda: self.connection.execute(sql, list(params)).fetchall())

    def table(self, sql: str, params: Sequence[Any] = ()) -> pa.Table:
        return self._run(lambda: self.connection.execute(sql, list(params)).to_arrow_table())

    def blocks(self, sql: str, params: Sequence[Any] = (), *, rows: int) -> pa.RecordBatchReader:
        """A result that may be larger than memory, ``rows`` at a time. Nothing else may be asked of it meanwhile."""
        return self._run(lambda: self.connection.execute(sql, list(params)).to_arrow_reader(rows))

    def execute(self, sql: str, params: Sequence[Any] = ()) -> None:
        self._run(lambda: self.connection.execute(sql, list(params)))

    def insert(self, table: str, rows: pa.Table) -> None:
        """Append rows by column name."""

        def body() -> None:
            self.connection.register("inserted_rows", rows)
            try:
                self.connection.execute(f'INSERT INTO "{table}" BY NAME SELECT * FROM inserted_rows')
            finally:
                self.connection.unregister("inserted_rows")

        self._run(body)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing, once; a nested one joins. Use `retrying` where another process may commit meanwhile."""
        with self._lock:
            outermost = self._depth == 0
            if outermost:
                self.connection.execute("BEGIN")
            self._depth += 1
            try:
                yield
                if outermost:
                    self.connection.execute("COMMIT")
            except BaseException:
                if outermost:
                    with suppress(duckdb.Error):
                        self.connection.execute("ROLLBACK")
                raise
            finally:
                self._depth -= 1

    def retrying(self, body: Callable[[], Result]) -> Result:
        """Run ``body`` in a transaction, the whole of it again while the catalog is locked or another commit conflicts.

        On SQLite a transaction that has read is refused whenever another process committed since, whatever it wrote.
        """

        def once() -> Result:
            with self.transaction():
                result = body()
                self.guard()
                return result

        return self._run(once)

    @contextmanager
    def pinned(self) -> Iterator[str]:
        """Tables are read as they are now, whatever is committed meanwhile; gives the name of that catalog.

        A transaction would do so too, but has one thread alone read what was written in it: 28 s instead of 14 to write
        10M rows out of a temporary table.
        """
        name = "pinned"
        with self._lock:
            try:
                self._run(lambda: attach_pinned(self.connection, self._location, name))
                yield name
            finally:
                self._run(lambda: detach_pinned(self.connection, name))

    def staging(self, table: str, run_id: str) -> str:
        """The folder (or s3 prefix; no slash at its end) that a run's workers write files to; made if it is local."""
        folder = f"{self.data_path}main/{table}/{run_id}"
        if not folder.startswith("s3://"):
            self._run(lambda: os.makedirs(folder, exist_ok=True))
        return folder

    def close(self) -> None:
        with suppress(duckdb.Error):
            self.connection.execute("USE memory; DETACH lake")
        self.metadata.close()
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _run(self, body: Callable[[], Result]) -> Result:
        with self._lock:
            return patiently(body, self.uri, is_inside=self._depth > 0, doublings=6)
