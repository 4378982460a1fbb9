"""The lake: DuckDB with a DuckLake catalog attached, and the manners for a catalog that others read and write too."""

import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import duckdb
import pyarrow as pa

from catalog import lease, schema
from catalog.attach import attach, connect, extensions_for, quoted, use_s3_credentials
from catalog.error import BadQuery, NewerLake, PairmillError, explained, is_transient
from catalog.location import Location, locate
from catalog.metadata import Metadata, open_metadata

PATIENCE_SECONDS = 60.0
_MISTAKES = (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException, duckdb.ConversionException)
Result = TypeVar("Result")


class Lake:
    """``uri`` as given, ``data_path`` an absolute folder or s3 URL ending in a slash, ``connection`` a DuckDB connection that
    uses the lake. Threads may share a lake: a statement, or a whole transaction, has it to itself."""

    def __init__(
        self, location: Location, connection: duckdb.DuckDBPyConnection, metadata: Metadata, read_only: bool
    ) -> None:
        self.uri = location.uri
        self.data_path = location.data_path
        self.connection = connection
        self.metadata = metadata
        self.read_only = read_only
        self._lock = threading.RLock()
        self._depth = 0

    def query(self, sql: str, params: Sequence[Any] = ()) -> list[tuple]:
        return self._run(lambda: self.connection.execute(sql, list(params)).fetchall())

    def table(self, sql: str, params: Sequence[Any] = ()) -> pa.Table:
        return self._run(lambda: self.connection.execute(sql, list(params)).to_arrow_table())

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
        """Run ``body`` in a transaction, the whole of it again while the catalog is locked or another commit conflicts."""

        def once() -> Result:
            with self.transaction():
                return body()

        return self._run(once)

    def staging(self, table: str, run_id: str) -> str:
        """The folder (or s3 prefix) that a run's workers write a table's files to; made if it is local."""
        folder = f"{self.data_path}main/{table}/{run_id}"
        if not folder.startswith("s3://"):
            self._run(lambda: os.makedirs(folder, exist_ok=True))
        return folder

    def close(self) -> None:
        self.connection.close()
        if not self.read_only:
            with suppress(Exception):
                self.metadata.rest()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _run(self, body: Callable[[], Result]) -> Result:
        with self._lock:
            deadline = time.monotonic() + PATIENCE_SECONDS
            for attempt in range(1_000_000):
                try:
                    return body()
                except (duckdb.Error, OSError) as error:
                    # Inside a transaction only the whole of it can be tried again, by its outermost `retrying`.
                    if self._depth or not is_transient(error):
                        raise _translated(error, self.uri, self._depth) from error
                    if time.monotonic() > deadline:
                        raise PairmillError(
                            f"lake '{self.uri}': its catalog was busy for {PATIENCE_SECONDS:.0f} s. See who writes with "
                            f"`pairmill status`, wait for it and run again; nothing was lost. ({error})"
                        ) from error
                time.sleep(random.uniform(0.01, 0.05) * 2 ** min(attempt, 6))
        raise AssertionError("unreachable")


def create_or_open(uri: str | Path, read_only: bool = False) -> Lake:
    """Open the lake at a folder or lake.yaml. A writer creates what is missing and brings an older lake up to date; a reader
    needs a lake that exists, is never blocked by a writer and changes nothing."""
    location = locate(uri)
    try:
        return _open(location, read_only)
    except (duckdb.Error, OSError, __import__("sqlite3").Error) as error:
        raise _translated(error, location.uri, 0) from error


def _open(location: Location, read_only: bool) -> Lake:
    if read_only and not location.on_postgres and not Path(location.metadata).is_file():
        raise PairmillError(f"there is no lake at '{location.uri}'. Check --lake, or make one with `pairmill run`.")
    metadata = open_metadata(location, read_only)
    if not metadata.has_lake():
        if read_only:
            raise PairmillError(f"there is no lake at '{location.uri}'. Check --lake, or make one with `pairmill run`.")
        with lease.hold(metadata, location.uri, "-", "create the lake", wait_seconds=60):
            _attached(location, metadata, read_only).connection.close()
    lake = _attached(location, metadata, read_only)
    try:
        _bring_up_to_date(lake)
    except BaseException:
        lake.connection.close()
        raise
    return lake


def _attached(location: Location, metadata: Metadata, read_only: bool) -> Lake:
    connection = connect(*extensions_for(location))
    if location.on_s3:
        use_s3_credentials(connection)
    elif not read_only:
        os.makedirs(location.data_path, exist_ok=True)
    attach(connection, location, read_only)
    return Lake(location, connection, metadata, read_only)


def _bring_up_to_date(lake: Lake) -> None:
    version = schema.version(lake)
    if version > schema.NEWEST:
        raise NewerLake(
            f"lake '{lake.uri}' was made by a newer Pairmill (schema {version}, this one knows {schema.NEWEST}). "
            "Install that version or a later one; the lake was not touched."
        )
    if lake.read_only:
        return
    if version < schema.NEWEST:
        with lease.hold(lake.metadata, lake.uri, "-", f"migrate to schema {schema.NEWEST}", wait_seconds=60):
            schema.migrate(lake)
    _remember_place(lake)


def _remember_place(lake: Lake) -> None:
    """A lake that was moved, or copied, tells plain DuckDB readers where its data lies now."""
    where = "key = 'data_path' AND scope IS NULL"
    stored = lake.metadata.read(f"SELECT value FROM ducklake_metadata WHERE {where}", {})
    if stored and stored[0][0] != lake.data_path:
        lake.metadata.write(f"UPDATE ducklake_metadata SET value = :path WHERE {where}", {"path": lake.data_path})


def _translated(error: Exception, uri: str, depth: int) -> Exception:
    if isinstance(error, _MISTAKES):
        return BadQuery(str(error))
    return (None if depth and is_transient(error) else explained(error, uri)) or error


__all__ = ["Lake", "create_or_open", "quoted"]
