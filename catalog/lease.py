"""One writing flow at a time: the lease, its heartbeat, and the Writer that holds it.

The row lives in the metadata database beside DuckLake's own tables (view `lake.lease`), not in a DuckLake table, for
two reasons. Taking it must be atomic: there the database itself refuses the second of two takers, whereas two DuckLake
transactions that insert need not conflict. And a beat must cost nothing: in DuckLake each one would be a
snapshot, 4,320 a day.
"""

import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import duckdb
import psutil

from catalog.commit import Manifest, commit
from catalog.error import LeaseHeld, LeaseLost, PairmillError
from catalog.metadata import Metadata

if TYPE_CHECKING:
    from catalog.lake import Lake

BEAT_SECONDS = 20.0
EXPIRY_SECONDS = 90.0

_COLUMNS = "token, holder, host, pid, started, run_id, purpose, heartbeat, expires"
_BEAT = "UPDATE pairmill_lease SET heartbeat = ?, expires = ? WHERE token = ?"


@dataclass(frozen=True)
class Holder:
    """The lease row. ``heartbeat`` and ``expires`` are UTC texts of one width, so that they compare as texts."""

    token: str
    holder: str
    host: str
    pid: int
    started: float
    run_id: str
    purpose: str
    heartbeat: str
    expires: str

    def is_over(self) -> bool:
        """Not renewed in time; or of this host and its process is gone, so that a killed run can be resumed at once."""
        return self.expires < _times()[0] or (self.host == host() and not _is_running(self.pid, self.started))

    def __str__(self) -> str:
        age = (datetime.now(UTC) - datetime.fromisoformat(self.heartbeat)).total_seconds()
        return f"{self.holder}, run {self.run_id}, '{self.purpose}', last heard of {max(0, round(age))} s ago"


class Writer:
    """What may write to the lake while its lease holds."""

    def __init__(self, lake: "Lake", run_id: str, token: str) -> None:
        self.lake = lake
        self.run_id = run_id
        self._token = token

    def begin(self, step: str) -> int:
        """Allocate the commit number that the step's workers write into their rows; strictly increasing."""

        def allocate() -> int:
            number = self.lake.query('SELECT coalesce(max("commit"), 0) + 1 FROM commits')[0][0]
            self.lake.execute("INSERT INTO commits VALUES (?, ?, ?, ?)", (number, self.run_id, step, datetime.now(UTC)))
            return number

        return self.lake.retrying(allocate)

    def commit(self, manifests: Sequence[Manifest]) -> int:
        """Register finished partitions; see catalog.commit. Returns how many were new."""
        return commit(self.lake, manifests)

    def check(self) -> None:
        """Raise LeaseLost unless this process still holds the lease. Called at the end of each transaction (the lake's
        guard): its body may have taken minutes, or the machine may have stood still. Whoever takes the lease over makes
        a commit of partitions that is under way between this and its end conflict (see `writing`)."""
        held = holder_of(self.lake.metadata)
        if held is None or held.token != self._token:
            by = f"{held} took it over" if held else "it expired"
            raise LeaseLost(
                f"lake '{self.lake.uri}': this run ({self.run_id}) no longer holds the lease: {by}. Nothing more is "
                "written by it; run it again to go on from what was committed."
            )


@contextmanager
def writing(lake: "Lake", run_id: str, purpose: str, wait_seconds: float = 0.0) -> Iterator[Writer]:
    """Hold the lake's lease. LeaseHeld when another process does and still does after ``wait_seconds``."""
    with hold(lake.metadata, lake.uri, run_id, purpose, wait_seconds) as (token, took_over):
        if took_over:
            # A comment alters the table, so a commit of the former holder that is still under way is refused.
            lake.execute(f"COMMENT ON TABLE partitions IS 'lease {token}'")
        writer = Writer(lake, run_id, token)
        lake.guard = writer.check
        try:
            yield writer
        finally:
            lake.guard = lambda: None


@contextmanager
def hold(
    metadata: Metadata, uri: str, run_id: str, purpose: str, wait_seconds: float = 0.0
) -> Iterator[tuple[str, bool]]:
    """Take the lease, beat while the body runs, release. Yields (token, whether a lease that had expired was taken)."""
    token, took_over = _acquire(metadata, uri, run_id, purpose, wait_seconds)
    stop = threading.Event()
    thread = threading.Thread(target=_beat, args=(metadata, token, stop), name="lease", daemon=True)
    thread.start()
    try:
        yield token, took_over
    finally:
        stop.set()
        thread.join(timeout=5)
        # On a full disk, say, this fails too, and must not hide why the body did: the lease then expires by itself.
        with suppress(duckdb.Error, PairmillError):
            metadata.write("DELETE FROM pairmill_lease WHERE token = ?", (token,))


def holder_of(metadata: Metadata) -> Holder | None:
    rows = metadata.read(f"SELECT {_COLUMNS} FROM pairmill_lease")
    return Holder(*rows[0]) if rows else None


def _acquire(metadata: Metadata, uri: str, run_id: str, purpose: str, wait_seconds: float) -> tuple[str, bool]:
    deadline = time.monotonic() + wait_seconds
    while True:
        mine = _mine(run_id, purpose)
        before, taken = metadata.retrying(lambda mine=mine: _take(metadata, mine))
        if taken:
            return mine.token, before is not None
        if time.monotonic() >= deadline:
            raise LeaseHeld(
                f"lake '{uri}' is being written by {before}. Wait until it ends, or stop it; a holder that has died is "
                f"replaced at once on its own machine, after {EXPIRY_SECONDS:.0f} s from another."
            )
        time.sleep(min(1.0, max(0.05, deadline - time.monotonic())))


def _take(metadata: Metadata, mine: Holder) -> tuple[Holder | None, bool]:
    """Become the holder unless there is one whose time is not over. Returns who was there before, and whether it did:
    asked again, a holder that ends just then would seem to have been replaced."""
    before = holder_of(metadata)
    over = before is None or before.is_over()
    if before is None:
        values = astuple(mine)
        marks = ", ".join("?" * len(values))
        metadata.write(f"INSERT INTO pairmill_lease (slot, {_COLUMNS}) VALUES (1, {marks})", values)
    elif over:
        columns = ", ".join(f"{name} = ?" for name in _COLUMNS.split(", "))
        metadata.write(f"UPDATE pairmill_lease SET {columns} WHERE token = ?", (*astuple(mine), before.token))
    return before, over


def _mine(run_id: str, purpose: str) -> Holder:
    process = psutil.Process()
    holder = f"{socket.gethostname()}:{process.pid}"
    return Holder(uuid.uuid4().hex, holder, host(), process.pid, process.create_time(), run_id, purpose, *_times())


def _beat(metadata: Metadata, token: str, stop: threading.Event) -> None:
    while not stop.wait(BEAT_SECONDS):
        try:
            metadata.write(_BEAT, (*_times(), token))
        except (duckdb.Error, PairmillError):
            # A beat that finds the database locked or away is made up for by the next; four fit into one expiry.
            continue


def _times() -> tuple[str, str]:
    """Now, and when a lease that is not renewed is over."""
    now = datetime.now(UTC)
    later = now + timedelta(seconds=EXPIRY_SECONDS)
    return now.isoformat(timespec="microseconds"), later.isoformat(timespec="microseconds")


def host() -> str:
    """The name of this machine and of its process-number space: two containers may share the one, not the other."""
    try:
        return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def _is_running(pid: int, started: float) -> bool:
    """Whether this very process runs still: the number may have been given to another since."""
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and abs(process.create_time() - started) < 1.0
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
