"""Query and change a lake: DuckDB with a DuckLake catalog attached, retried while other processes use it."""

import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import duckdb

from catalog.lake.attach import attach_pinned, detach_pinned
from catalog.lake.checksums import Checksums
from catalog.lake.location import Location
from catalog.lake.metadata import Metadata
from catalog.lake.patience import patiently
from catalog.terms.error import PairmillError

if TYPE_CHECKING:
    import pyarrow as pa  # 0.1 CPU s, of which `sql` and `why` need nothing

Result = TypeVar("Result")
_WORDS = re.compile(r"\w+")


class Lake:
    """An open lake. ``uri`` as given, ``data_path`` an absolute folder or s3 URL ending in a slash.

    Threads may share a lake: a statement, or a whole transaction, locks it. ``guard`` runs at the end of each
    transaction of `retrying` and refuses it by raising: under a lease it checks that the lease still holds. Methods
    raise PairmillError with the remedy (disk, rights, network, busy for 60 s), BadQuery for wrong SQL.
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
        self._lock = threading.RLock()
        self._depth = 0
        self.checksums = Checksums(metadata, location)
        self._unchecked = self._tables() if self.checksums.applies else {}

    def query(self, sql: str, params: Sequence[Any] = ()) -> list[tuple]:
        """Run a statement and return its rows."""
        self.check_tables_of(sql)
        return self._run(lambda: self.connection.execute(sql, list(params)).fetchall())

    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Run a query and return its rows as dictionaries by column; it needs no pyarrow, as `table` does."""
        self.check_tables_of(sql)

        def body() -> list[dict[str, Any]]:
            found = self.connection.execute(sql, list(params))
            names = [column[0] for column in found.description or ()]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

        return self._run(body)

    def table(self, sql: str, params: Sequence[Any] = ()) -> "pa.Table":
        """Run a query and return its result as an Arrow table."""
        self.check_tables_of(sql)
        return self._run(lambda: self.connection.execute(sql, list(params)).to_arrow_table())

    def blocks(self, sql: str, params: Sequence[Any] = (), *, rows: int) -> "pa.RecordBatchReader":
        """Stream a result that may be larger than memory, ``rows`` at a time; run no other statement meanwhile."""
        self.check_tables_of(sql)
        return self._run(lambda: self.connection.execute(sql, list(params)).to_arrow_reader(rows))

    def execute(self, sql: str, params: Sequence[Any] = ()) -> None:
        """Run a statement without reading a result."""
        self.check_tables_of(sql)
        self._run(lambda: self.connection.execute(sql, list(params)))

    def check_tables_of(self, sql: str) -> None:
        """Check the files of every table whose name stands in ``sql``, once a process. Raises Damaged when one is
        damaged or gone."""
        if self._unchecked:
            for table in {name for word in _WORDS.findall(sql.lower()) for name in self._unchecked.get(word, ())}:
                self.check_files(table)

    def check_files(self, table: str) -> None:
        """Check the files of ``table``, once a process: for who opens them by their paths. Raises Damaged."""
        with self._lock:
            if table in self._unchecked:
                found = self.query("SELECT data_file, delete_file FROM ducklake_list_files('lake', ?)", (table,))
                files = {path.removeprefix(self.data_path) for row in found for path in row if path}
                self.checksums.check(table, sorted(files))
                del self._unchecked[table]

    def insert(self, table: str, rows: "pa.Table") -> None:
        """Append ``rows`` to ``table`` by column name."""

        def body() -> None:
            self.connection.register("inserted_rows", rows)
            try:
                self.connection.execute(f'INSERT INTO "{table}" BY NAME SELECT * FROM inserted_rows')
            finally:
                self.connection.unregister("inserted_rows")

        self._run(body)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit the body as one transaction, without retry; a nested one joins the outer. See `retrying`."""
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
        """Run ``body`` in a transaction, and the whole of it again while the catalog is locked or a commit conflicts.

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
        """Read the tables at the current snapshot, whatever is committed meanwhile; yields the name of that catalog.

        A transaction would do so too, but reads what was written in it with one thread: 28 s instead of 14 to write 10M
        rows out of a temporary table.
        """
        name = "pinned"
        with self._lock:
            try:
                self._run(lambda: attach_pinned(self.connection, self._location, name))
                yield name
            finally:
                self._run(lambda: detach_pinned(self.connection, name))

    def staging(self, table: str, run_id: str) -> str:
        """Return the folder or s3 prefix (no slash at its end) for a run's files of ``table``; made if it is local."""
        folder = f"{self.data_path}main/{table}/{run_id}"
        if not folder.startswith("s3://"):
            self._run(lambda: os.makedirs(folder, exist_ok=True))
        return folder

    def _tables(self) -> dict[str, set[str]]:
        """Return, by the name of each table and view, the tables that it reads."""
        tables = "SELECT table_name FROM duckdb_tables() WHERE database_name = 'lake' AND schema_name = 'main'"
        views = "SELECT view_name, sql FROM duckdb_views() WHERE database_name = 'lake' AND schema_name = 'main'"
        found = {name: {name} for (name,) in self.connection.execute(tables).fetchall()}
        for name, sql in self.connection.execute(views).fetchall():
            found[name] = {word for word in _WORDS.findall(sql.lower()) if word in found}
        return found

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

    def _run(self, body: Callable[[], Result]) -> Result:
        """Run ``body`` until it succeeds, waiting 0.02 to 3 s in between, for PATIENCE_SECONDS at most."""
        with self._lock:
            return patiently(body, self.uri, is_inside=self._depth > 0, doublings=6)
