"""Acquire and renew the lease: a row of the metadata database that at most one process holds, renewed by a heartbeat.

Clocks need not agree. A process that finds a lease of another machine watches for EXPIRY_SECONDS of its own clock
whether the heartbeat changes; the times in the row are only for display.
"""

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

from pairmill.catalog.lake.host import host_since_boot, is_running
from pairmill.catalog.lake.metadata import FORMER, FORMER_TABLE, Metadata
from pairmill.catalog.terms.error import LeaseHeld, PairmillError

BEAT_SECONDS = 20.0
EXPIRY_SECONDS = 90.0
_COLUMNS = "token, holder, host, pid, started, run_id, purpose, heartbeat, expires, waiting"
_BEAT = "UPDATE pairmill_lease SET heartbeat = ?, expires = ? WHERE token = ?"


@dataclass(frozen=True)
class Holder:
    """The lease row: which process holds the lease, and until when; ``waiting`` names what the run waits for, or ''.

    ``started`` (seconds since 1970), ``heartbeat`` and ``expires`` (texts in UTC) are times of the holder's clock.
    """

    token: str
    holder: str
    host: str
    pid: int
    started: float
    run_id: str
    purpose: str
    heartbeat: str
    expires: str
    waiting: str = ""

    def is_here(self) -> bool:
        """Return whether the holder's process runs on this machine, since this boot, in a visible pid namespace."""
        return self.host == host_since_boot()

    def is_dead(self) -> bool:
        """Return whether the holder's process has ended, e.g. was killed; known only for processes on this machine."""
        return self.is_here() and not is_running(self.pid, self.started)

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.started, UTC)
        beat = datetime.fromisoformat(self.heartbeat)
        times = f"since {since:%Y-%m-%d %H:%M:%S}, last heartbeat {beat:%Y-%m-%d %H:%M:%S} UTC by its clock"
        return f"{self.holder}, run {self.run_id}, '{self.purpose}', {times}"


class LeaseObserver:
    """Observe the lease holder's heartbeat while waiting for the lease, timed by the local monotonic clock."""

    def __init__(self) -> None:
        self._beat: tuple[str, str] | None = None
        self._since = 0.0
        self.is_alive = False

    def is_over(self, holder: Holder, asked: float) -> bool:
        """Return whether the holder, read after the monotonic time ``asked``, died or was silent for EXPIRY_SECONDS."""
        beat = (holder.token, holder.heartbeat)
        if holder.is_here():
            self.is_alive = not holder.is_dead()
            return holder.is_dead()
        if beat == self._beat:
            return asked - self._since >= EXPIRY_SECONDS
        self.is_alive = self._beat is not None
        self._beat, self._since = beat, time.monotonic()
        return False


@contextmanager
def hold(metadata: Metadata, uri: str, run_id: str, purpose: str, wait_seconds: float) -> Iterator[tuple[str, bool]]:
    """Acquire the lease, renew it in the body, release it; yield its token, and whether a dead holder was replaced.

    A dead holder on another machine is replaced after EXPIRY_SECONDS, and known to live within BEAT_SECONDS. Raises
    LeaseHeld if another process still holds the lease after ``wait_seconds``.
    """
    token, took_over = _acquire(metadata, uri, run_id, purpose, wait_seconds)
    stop = threading.Event()
    thread = threading.Thread(target=_beat, args=(metadata, token, stop), name="lease", daemon=True)
    thread.start()
    try:
        yield token, took_over
    finally:
        stop.set()
        thread.join(timeout=5)
        # This may fail, as on a full disk, and must not hide the body's error: the lease expires as a dead holder's.
        with suppress(duckdb.Error, PairmillError):
            metadata.write("DELETE FROM pairmill_lease WHERE token = ?", (token,))
            if metadata.has(FORMER):  # another machine may have taken the lease over meanwhile
                metadata.write(f"DELETE FROM {FORMER} WHERE token = ?", (token,))


def holder_of(metadata: Metadata) -> Holder | None:
    """Return the lease row, whether its holder is alive or not; None if nobody holds the lease."""
    rows = metadata.read(f"SELECT {_COLUMNS} FROM pairmill_lease")
    return Holder(*rows[0]) if rows else None


def former_holders(metadata: Metadata) -> list[Holder]:
    """Return former holders whose process may still write: it is on another machine, and nobody has seen its end."""
    if not metadata.has(FORMER):
        return []
    found = [Holder(*row) for row in metadata.read(f"SELECT {_COLUMNS} FROM {FORMER}")]
    return [holder for holder in found if not holder.is_dead()]


def forget_former_holders(metadata: Metadata, older_than_seconds: float) -> None:
    """Delete the former holders whose last heartbeat, by their own clock, is more than ``older_than_seconds`` ago."""
    if metadata.has(FORMER):
        before = (datetime.now(UTC) - timedelta(seconds=older_than_seconds)).isoformat(timespec="microseconds")
        metadata.write(f"DELETE FROM {FORMER} WHERE heartbeat < ?", (before,))


def show_waiting(metadata: Metadata, token: str, text: str) -> None:
    """Write to the lease row what the run waits for, '' when it waits no longer. Errors are ignored."""
    # Errors are ignored, as the text is for display: a catalog failing for a minute ends the run at the next commit.
    with suppress(duckdb.Error, PairmillError):
        metadata.write("UPDATE pairmill_lease SET waiting = ? WHERE token = ?", (text, token))


def _acquire(metadata: Metadata, uri: str, run_id: str, purpose: str, wait_seconds: float) -> tuple[str, bool]:
    """Take the lease; return (its token, whether the holder before had died).

    Raises LeaseHeld if another live process still holds it after ``wait_seconds``.
    """
    deadline = time.monotonic() + wait_seconds
    watch = LeaseObserver()
    while True:
        mine = _new_holder(run_id, purpose)
        before, taken = metadata.retrying(lambda mine=mine: _try_take(metadata, mine, watch))
        if taken:
            return mine.token, before is not None
        if before and watch.is_alive and time.monotonic() >= deadline:
            at = "" if before.is_here() else f" on {before.holder.rpartition(':')[0]}"
            raise LeaseHeld(
                f"lake '{uri}' is being written by {before}. Wait until it ends, or stop it (`kill {before.pid}`{at}); "
                f"what it finished is committed. A holder that has died is replaced: at once on its own machine, after "
                f"{EXPIRY_SECONDS:.0f} s from another."
            )
        time.sleep(min(1.0, EXPIRY_SECONDS / 20))


def _try_take(metadata: Metadata, mine: Holder, watch: LeaseObserver) -> tuple[Holder | None, bool]:
    """Take the lease unless another holder's lease is valid. Return (the previous holder, whether the lease was taken).

    Runs in one transaction: with two reads, a holder that releases in between would seem to be taken over. A heartbeat
    since the read makes the transaction conflict.
    """
    asked = time.monotonic()
    if (before := holder_of(metadata)) is None:
        values = astuple(mine)
        marks = ", ".join("?" * len(values))
        metadata.write(f"INSERT INTO pairmill_lease (slot, {_COLUMNS}) VALUES (1, {marks})", values)
        return None, True
    if watch.is_over(before, asked):
        if not before.is_here():  # nobody has seen it end
            metadata.write(FORMER_TABLE)
            metadata.write(f"INSERT INTO {FORMER} SELECT * FROM pairmill_lease")
        columns = ", ".join(f"{name} = ?" for name in _COLUMNS.split(", "))
        metadata.write(f"UPDATE pairmill_lease SET {columns} WHERE token = ?", (*astuple(mine), before.token))
        return before, True
    return before, False


def _new_holder(run_id: str, purpose: str) -> Holder:
    """Return a lease row for this process, with a new token."""
    process = psutil.Process()
    holder = f"{socket.gethostname()}:{process.pid}"
    where, started = host_since_boot(), process.create_time()
    return Holder(uuid.uuid4().hex, holder, where, process.pid, started, run_id, purpose, *_times())


def _beat(metadata: Metadata, token: str, stop: threading.Event) -> None:
    """Renew the lease every BEAT_SECONDS until ``stop`` is set.

    On SQLite, a renewal waits for the holder's own transaction; on this machine a holder is alive while its process is.
    """
    while not stop.wait(BEAT_SECONDS):
        try:
            with metadata.undisturbed():
                metadata.write(_BEAT, (*_times(), token))
        except (duckdb.Error, PairmillError):
            # A failed renewal (database locked or away) is made up for by the next: four fit into EXPIRY_SECONDS.
            continue


def _times() -> tuple[str, str]:
    """Return (now, expiry of a lease renewed now) as UTC texts by this machine's clock."""
    now = datetime.now(UTC)
    later = now + timedelta(seconds=EXPIRY_SECONDS)
    return now.isoformat(timespec="microseconds"), later.isoformat(timespec="microseconds")
