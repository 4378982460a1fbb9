"""Write to a lake under its lease, which admits one writing flow at a time.

The lease is a row in the metadata database beside DuckLake's own tables (view `lake.lease`), not in a DuckLake table,
for two reasons. Acquiring it must be atomic: the database itself refuses the second of two processes, whereas two
DuckLake inserts need not conflict. And a heartbeat must be free: in DuckLake each would be a snapshot, 4,320 a day.

A writer also commits results as they come (`commit_stream`), and deletes the bounds that no query needs (`thin`).
"""

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

import duckdb
import pyarrow as pa

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.lease_row import hold, holder_of, show_waiting
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.lake.schema import BOOKKEEPING, LOOKED_UP
from pairmill.catalog.terms.error import LeaseLost, PairmillError
from pairmill.catalog.write import act_queue
from pairmill.catalog.write.commit import Committed, Manifest, commit
from pairmill.catalog.write.scorer import Scorer, register

# Files after which a long run deletes useless bounds of their columns; a quarter more each time, as it reads all.
THIN_EVERY = 200
ACTS_SECONDS = 10.0  # between two looks for people's acts while results are committed


class Writer:
    """The holder of a lake's lease: allocates commit numbers and commits partitions.

    Only the holder allocates numbers, so it counts in memory. The row of a number in ``commits`` and the registration
    of scorers are part of the next transaction: the 34 numbers and 23 registrations of a first run need no transactions
    (40 ms each) of their own. A number under which nothing is committed is allocated again by the next run.
    """

    def __init__(self, lake: Lake, run_id: str, token: str) -> None:
        self.lake = lake
        self.run_id = run_id
        self._token = token
        self._committed = Committed(lake)
        self._last: int | None = None
        self._begun: dict[int, tuple] = {}  # unwritten rows of ``commits``, by number
        self._scorers: dict[str, tuple[Scorer, int]] = {}  # not yet registered, by digest
        self._written: tuple[list[int], list[str]] = ([], [])
        self._files = 0  # committed since their bounds were thinned
        self._thin_every = THIN_EVERY
        self._looked = 0.0

    def begin(self, step: str, scorers: Sequence[Scorer] = ()) -> int:
        """Allocate a commit number, which a step's workers write into their rows. Numbers strictly increase.

        The next transaction records the number and registers ``scorers``. Raises LeaseLost.
        """
        self.check()
        before = self._newest() if self._last is None else self._last
        self._last = number = before + 1
        self._begun[number] = (number, self.run_id, step, datetime.now(UTC))
        for scorer in scorers:
            self._scorers.setdefault(scorer.digest, (scorer, number))
        return number

    def commit(self, manifests: Sequence[Manifest]) -> int:
        """Commit finished partitions in one transaction; return the number of new ones; see `catalog.write.commit`."""
        new = commit(self.lake, manifests, self._committed)
        self._files += new
        if self._files >= self._thin_every:
            self.thin()
            self._thin_every += self._thin_every // 4
        if time.monotonic() - self._looked >= ACTS_SECONDS:
            self.take_acts()
        return new

    def thin(self) -> None:
        """Delete unused column bounds of files by `thin` if any files were committed since the last call.

        On a full disk, or with a busy catalog, they stay until the next call.
        """
        if self._files:
            self._files = 0
            with suppress(PairmillError, duckdb.Error):
                thin(self.lake)

    def take_acts(self) -> None:
        """Store the acts that people have queued meanwhile. Raises LeaseLost."""
        self._looked = time.monotonic()
        act_queue.take(self.lake, lambda: self.begin("edit"))

    def show_waiting(self, text: str) -> None:
        """Store in the lease row what this run waits for, '' once it works again. Makes no snapshot."""
        show_waiting(self.lake.metadata, self._token, text)

    def end_transaction(self) -> None:
        """Write new commit numbers and scorers, then check the lease, at a transaction's end: the lake's ``guard``.

        The transaction may have taken minutes, or the machine may have been suspended. A COMMIT that runs during a
        takeover conflicts with it (see `writing`). Raises LeaseLost.
        """
        begun, scorers = sorted(self._begun), list(self._scorers.values())
        if begun:
            if self._newest() >= begun[0]:
                raise self._lost("commit numbers that it gave out are another's")
            rows = zip(*(self._begun[number] for number in begun), strict=True)
            columns = ("commit", "run_id", "step", "at")
            self.lake.insert("commits", pa.table(dict(zip(columns, map(list, rows), strict=True))))
        if scorers:
            register(self.lake, scorers)
        self._written = (begun, [scorer.digest for scorer, _ in scorers])
        self.check()

    def settle(self) -> None:
        """Forget the commit numbers and scorers that the last committed transaction wrote: the lake's ``settled``."""
        for number in self._written[0]:
            del self._begun[number]
        for digest in self._written[1]:
            del self._scorers[digest]
        self._written = ([], [])

    def check(self) -> None:
        """Raise LeaseLost unless this process still holds the lease."""
        if (held := holder_of(self.lake.metadata)) is None or held.token != self._token:
            raise self._lost(f"{held} took it over" if held else "it expired")

    def _newest(self) -> int:
        """Return the highest recorded commit number, 0 if none."""
        return self.lake.query('SELECT coalesce(max("commit"), 0) FROM commits')[0][0]

    def _lost(self, why: str) -> LeaseLost:
        """Return the error for a lost lease."""
        return LeaseLost(
            f"lake '{self.lake.uri}': this run ({self.run_id}) no longer holds the lease: {why}. Nothing more is "
            "written by it; run it again to go on from what was committed."
        )


@contextmanager
def writing(lake: Lake, run_id: str, purpose: str, wait_seconds: float = 0.0) -> Iterator[Writer]:
    """Hold the lake's lease for the body; store queued acts before and after it.

    Raises LeaseHeld if another process still holds the lease after ``wait_seconds``.
    """
    with hold(lake.metadata, lake.uri, run_id, purpose, wait_seconds) as (token, took_over):
        if took_over:
            # A comment alters the table, so a running commit of the former holder conflicts.
            lake.execute(f"COMMENT ON TABLE partitions IS 'lease {token}'")
        writer = Writer(lake, run_id, token)
        lake.guard, lake.settled = writer.end_transaction, writer.settle
        try:
            writer.take_acts()
            yield writer
            writer.thin()
            writer.take_acts()
        finally:
            lake.guard = lake.settled = lambda: None


# Columns that have one value in a file of a worker, or neighbouring ones.
PRUNED_BY = ("shard", "scorer", "dataset", "version", "uri")
# No SQL reads this table's rows: workers open its files by their paths.
_NEVER_QUERIED = "vector_index"


def thin(lake: Lake) -> None:
    """Delete the column bounds of data files that no query uses: all but those of columns PRUNED_BY.

    Bounds of files of older snapshots go too. DuckLake stores the smallest and largest value of each column of each
    data file. For each column that a statement compares with a constant, it reads these rows of all tables, 1.7 µs each
    on SQLite: 5,600 of them made 9 of the 12 CPU ms of a statement on a small table, and each night adds some. Few
    columns have values that differ from file to file. For the others, a query without the row reads the same files.
    Rows of a file may be missing: files that are older than a column have none for it either.

    Reads all bounds: 5 ms for 3,000, 2 s for 1M. The rows, the snapshots and the bounds of whole tables stay as they
    are. Safe at any time; the holder of the lease does it after commits.
    """
    others = ", ".join(map(quoted, (*BOOKKEEPING, *LOOKED_UP)))
    columns = f"""SELECT table_id, column_id FROM ducklake_column JOIN ducklake_table USING (table_id)
        WHERE table_name NOT IN ({others})
        AND (table_name = '{_NEVER_QUERIED}' OR column_name NOT IN ({", ".join(map(quoted, PRUNED_BY))}))"""
    ended = "SELECT data_file_id FROM ducklake_data_file WHERE end_snapshot IS NOT NULL"
    useless = f"(table_id, column_id) IN ({columns}) OR data_file_id IN ({ended})"
    lake.metadata.write(f"DELETE FROM ducklake_file_column_stats WHERE {useless}")


def commit_stream(
    writer: Writer, results: Iterable[Manifest | Sequence[Manifest]], max_files: int = 200, max_seconds: float = 5.0
) -> int:
    """Commit results as they arrive: when ``max_files`` wait, or ``max_seconds`` after the first of them.

    Returns the number of new partitions. A result may be a sequence of manifests (the tables that one shard wrote),
    which share a transaction. Finished results are committed even if the iterator raises, and on time if it stalls.
    Raises what `Writer.commit` raises.
    """
    pending = _Pending(writer, max_files)
    stop = threading.Event()
    clock = threading.Thread(target=pending.tick, args=(stop, max_seconds), name="commit", daemon=True)
    clock.start()
    try:
        for result in results:
            pending.add([result] if isinstance(result, Manifest) else list(result))
    finally:
        stop.set()
        clock.join()
        pending.flush()
    return pending.new


class _Pending:
    """Finished results waiting for their commit, shared by the reading thread and the timer thread."""

    def __init__(self, writer: Writer, max_files: int) -> None:
        self.new = 0
        self._writer = writer
        self._max_files = max_files
        self._waiting: list[Manifest] = []
        self._since = 0.0
        self._lock = threading.RLock()
        self._error: Exception | None = None

    def add(self, manifests: list[Manifest]) -> None:
        """Queue results; commit all once ``max_files`` are queued. Re-raise the timer thread's error, if any."""
        with self._lock:
            if self._error is not None:
                raise self._error
            self._since = self._since if self._waiting else time.monotonic()
            self._waiting += manifests
            if len(self._waiting) >= self._max_files:
                self.flush()

    def flush(self) -> None:
        """Commit all queued results and count the new partitions."""
        with self._lock:
            if self._waiting:
                self.new += self._writer.commit(self._waiting)  # on failure all stay queued, for the last attempt
                self._waiting = []

    def tick(self, stop: threading.Event, max_seconds: float) -> None:
        """Commit whenever a result has waited ``max_seconds``, until ``stop`` is set; runs in the timer thread."""
        while not stop.wait(min(0.5, max_seconds)):
            with self._lock:
                if self._waiting and time.monotonic() - self._since >= max_seconds:
                    try:
                        self.flush()
                    except Exception as error:
                        self._error = error
                        return
