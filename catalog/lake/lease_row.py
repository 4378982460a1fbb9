"""Take and hold the lease: a row of the metadata database with one holder at a time, renewed by a heartbeat."""

import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass
from datetime import UTC, datetime, timedelta

import duckdb
import psutil

from catalog.lake.host import host, is_running
from catalog.lake.metadata import Metadata
from catalog.terms.error import LeaseHeld, PairmillError

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
        """Whether the lease can be taken over: it expired, or its process on this host is gone (a killed run)."""
        return self.expires < _times()[0] or (self.host == host() and not is_running(self.pid, self.started))

    def __str__(self) -> str:
        age = (datetime.now(UTC) - datetime.fromisoformat(self.heartbeat)).total_seconds()
        return f"{self.holder}, run {self.run_id}, '{self.purpose}', last heard of {max(0, round(age))} s ago"


@contextmanager
def hold(
    metadata: Metadata, uri: str, run_id: str, purpose: str, wait_seconds: float = 0.0
) -> Iterator[tuple[str, bool]]:
    """Take the lease, renew it while the body runs, release it. Yields (token, whether another's lease was taken over).

    Raises LeaseHeld when another still holds it after ``wait_seconds``.
    """
    token, took_over = _acquire(metadata, uri, run_id, purpose, wait_seconds)
    metadata.unseal()
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
    """Return the lease row, whether it expired or not; None when nobody holds the lease."""
    rows = metadata.read(f"SELECT {_COLUMNS} FROM pairmill_lease")
    return Holder(*rows[0]) if rows else None


def _acquire(metadata: Metadata, uri: str, run_id: str, purpose: str, wait_seconds: float) -> tuple[str, bool]:
    deadline = time.monotonic() + wait_seconds
    while True:
        mine = _new_holder(run_id, purpose)
        before, taken = metadata.retrying(lambda mine=mine: _try_take(metadata, mine))
        if taken:
            return mine.token, before is not None
        if time.monotonic() >= deadline:
            raise LeaseHeld(
                f"lake '{uri}' is being written by {before}. Wait until it ends, or stop it; a holder that has died is "
                f"replaced at once on its own machine, after {EXPIRY_SECONDS:.0f} s from another."
            )
        time.sleep(min(1.0, max(0.05, deadline - time.monotonic())))


def _try_take(metadata: Metadata, mine: Holder) -> tuple[Holder | None, bool]:
    """Become the holder unless another's lease still runs. Returns (the holder before, whether the lease was taken).

    In one transaction: read twice, a holder that releases in between would seem to have been taken over.
    """
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


def _new_holder(run_id: str, purpose: str) -> Holder:
    process = psutil.Process()
    holder = f"{socket.gethostname()}:{process.pid}"
    return Holder(uuid.uuid4().hex, holder, host(), process.pid, process.create_time(), run_id, purpose, *_times())


def _beat(metadata: Metadata, token: str, stop: threading.Event) -> None:
    """Renew the lease every BEAT_SECONDS until ``stop``."""
    while not stop.wait(BEAT_SECONDS):
        try:
            metadata.write(_BEAT, (*_times(), token))
        except (duckdb.Error, PairmillError):
            # One that fails (database locked or away) is made up for by the next: four fit into EXPIRY_SECONDS.
            continue


def _times() -> tuple[str, str]:
    """Return (now, when a lease renewed now expires) as UTC texts."""
    now = datetime.now(UTC)
    later = now + timedelta(seconds=EXPIRY_SECONDS)
    return now.isoformat(timespec="microseconds"), later.isoformat(timespec="microseconds")
