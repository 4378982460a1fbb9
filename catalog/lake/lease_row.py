"""Take and hold the lease: a row of the metadata database with one holder at a time, renewed by a heartbeat.

No two clocks need to agree. Whoever finds another machine's lease watches its heartbeat change, or not, for
EXPIRY_SECONDS of its own clock; the times in the row are only shown.
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
from pairmill.catalog.lake.metadata import Metadata
from pairmill.catalog.terms.error import LeaseHeld, PairmillError

BEAT_SECONDS = 20.0
EXPIRY_SECONDS = 90.0
_COLUMNS = "token, holder, host, pid, started, run_id, purpose, heartbeat, expires, waiting"
_BEAT = "UPDATE pairmill_lease SET heartbeat = ?, expires = ? WHERE token = ?"


@dataclass(frozen=True)
class Holder:
    """The lease row. ``started``, ``heartbeat`` and ``expires`` are of the holder's clock, the last two UTC texts.

    ``waiting`` says what a run waits for, '' while it works. It stands here since it is true no longer than the lease.
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
        """Whether this process can see the holder's."""
        return self.host == host_since_boot()

    def is_dead(self) -> bool:
        """Whether its process is known to have ended: only of one on this machine, a killed run's."""
        return self.is_here() and not is_running(self.pid, self.started)

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.started, UTC)
        beat = datetime.fromisoformat(self.heartbeat)
        times = f"since {since:%Y-%m-%d %H:%M:%S}, last heartbeat {beat:%Y-%m-%d %H:%M:%S} UTC by its clock"
        return f"{self.holder}, run {self.run_id}, '{self.purpose}', {times}"


class LeaseObserver:
    """What a process that waits for the lease has seen of its holder, timed by its own monotonic clock."""

    def __init__(self) -> None:
        self._beat: tuple[str, str] | None = None
        self._since = 0.0
        self.is_alive = False

    def is_over(self, holder: Holder, asked: float) -> bool:
        """Note the row that was read after ``asked``; whether its holder has died, or was silent for its term."""
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
def hold(
    metadata: Metadata, uri: str, run_id: str, purpose: str, wait_seconds: float = 0.0
) -> Iterator[tuple[str, bool]]:
    """Take the lease, renew it while the body runs, release it. Yields (token, whether another's lease was taken over).

    Raises LeaseHeld when another that is alive still holds it after ``wait_seconds``. Whether one of another machine
    is takes up to BEAT_SECONDS to see; one that is dead is replaced after EXPIRY_SECONDS.
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
        # On a full disk, say, this fails too, and must not hide why the body did: the lease is then a dead holder's.
        with suppress(duckdb.Error, PairmillError):
            metadata.write("DELETE FROM pairmill_lease WHERE token = ?", (token,))


def holder_of(metadata: Metadata) -> Holder | None:
    """Return the lease row, whether its holder lives or not; None when nobody holds the lease."""
    # By what is there: an older lake, which a reader leaves as it is, lacks the last column.
    rows = metadata.read("SELECT * EXCLUDE (slot) FROM pairmill_lease")
    return Holder(*rows[0]) if rows else None


def show_waiting(metadata: Metadata, token: str, text: str) -> None:
    """Say in the lease row what its holder waits for, '' when it works again."""
    # What is only shown costs no work: a catalog that takes no rows for a minute ends the run at its next commit.
    with suppress(duckdb.Error, PairmillError):
        metadata.write("UPDATE pairmill_lease SET waiting = ? WHERE token = ?", (text, token))


def _acquire(metadata: Metadata, uri: str, run_id: str, purpose: str, wait_seconds: float) -> tuple[str, bool]:
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
    """Become the holder unless another's lease still runs. Returns (the holder before, whether the lease was taken).

    In one transaction: read twice, a holder that releases in between would seem to have been taken over. A heartbeat
    since the read makes it conflict.
    """
    asked = time.monotonic()
    before = holder_of(metadata)
    if before is None:
        values = astuple(mine)
        marks = ", ".join("?" * len(values))
        metadata.write(f"INSERT INTO pairmill_lease (slot, {_COLUMNS}) VALUES (1, {marks})", values)
        return None, True
    if watch.is_over(before, asked):
        columns = ", ".join(f"{name} = ?" for name in _COLUMNS.split(", "))
        metadata.write(f"UPDATE pairmill_lease SET {columns} WHERE token = ?", (*astuple(mine), before.token))
        return before, True
    return before, False


def _new_holder(run_id: str, purpose: str) -> Holder:
    process = psutil.Process()
    holder = f"{socket.gethostname()}:{process.pid}"
    where, started = host_since_boot(), process.create_time()
    return Holder(uuid.uuid4().hex, holder, where, process.pid, started, run_id, purpose, *_times())


def _beat(metadata: Metadata, token: str, stop: threading.Event) -> None:
    """Renew the lease every BEAT_SECONDS until ``stop``."""
    while not stop.wait(BEAT_SECONDS):
        try:
            metadata.write(_BEAT, (*_times(), token))
        except (duckdb.Error, PairmillError):
            # One that fails (database locked or away) is made up for by the next: four fit into EXPIRY_SECONDS.
            continue


def _times() -> tuple[str, str]:
    """Return (now, when a lease renewed now would be given up) as UTC texts of this machine's clock."""
    now = datetime.now(UTC)
    later = now + timedelta(seconds=EXPIRY_SECONDS)
    return now.isoformat(timespec="microseconds"), later.isoformat(timespec="microseconds")
