"""Seal a lake's SQLite catalog: store its sha256 in a file beside it, which every process that opens the lake checks.

SQLite verifies no pages: a byte changed in a row silently becomes another row. The last process to close a lake seals
it. While a lake is being written, every change removes the seal and writes a new one, so a killed run leaves an
unsealed catalog for milliseconds only. Hashing takes 0.7 s per GB and at most a twentieth of the time: up to 300 MB
(some 300,000 partitions) each change is sealed, a larger catalog less often, at the latest with a heartbeat.

While a lake is being written, its catalog is sealed for the current boot of this machine only: after a power cut, it is
unknown which of catalog, seal and write-ahead log (left while another process reads) reached the disk. To sync each
seal would cost a commit three more syncs. Only the seal of a closed lake is synced, and its removal by the next writer.

Several processes may change a catalog at once: the one that has the lease, those that wait for it, those that open it.
Each holds `FolderLock` while the seal is removed and the catalog changes. A process that writes a seal, or finds a
wrong one, holds the lock exclusively.
"""

import fcntl
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self

from pairmill.catalog.lake.host import host_since_boot
from pairmill.catalog.lake.location import Location
from pairmill.catalog.lake.stored_files import file_digest, file_stamp, sync
from pairmill.catalog.terms.error import Damaged
from pairmill.catalog.terms.whole_file import whole_file

SHARE = 20  # a change is sealed if the last sealing is at least SHARE times its own duration ago
# For this long a log and a catalog that nobody changes may differ from their seal: a process that ends the last read is
# writing the log into the catalog, which SQLite does without a change that we could lock. Syncs take most of it.
MERGING_SECONDS = 1.0
# The longest waits for others that change the catalog: of who finds that it does not fit, and of who closes it.
ALONE_SECONDS, CLOSING_SECONDS = 10.0, 1.0


class Seal:
    """The seal of an open catalog, shared by the writing threads of one process."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._lock = threading.RLock()
        self._due = 0.0  # by the monotonic clock

    @contextmanager
    def broken(self) -> Iterator[None]:
        """Allow the `with` block to change the catalog: remove the seal before it, write a new seal after it.

        While another process changes the catalog, no seal is written: the next change is sealed.
        """
        with self._lock, FolderLock(self._location.metadata) as folder:
            remove(self._location)
            try:
                yield
            finally:
                began = time.monotonic()
                if began >= self._due and folder.is_alone():
                    with suppress(OSError):
                        self._seal()
                    self._due = time.monotonic() + SHARE * (time.monotonic() - began)

    def _seal(self) -> None:
        """Seal the catalog and its log, unless one of them changes meanwhile. Raise OSError.

        A reader of any process may end the last read and merge the log into the catalog: the catalog would be sealed
        as it was before, without a log. The next change is sealed.
        """
        before = _stamps(self._location)
        content: dict[str, Any] = {"boot": host_since_boot(), **_of(self._location.metadata)}
        if _is_in_use(self._location):
            content["log"] = _of(f"{self._location.metadata}-wal")
        if _stamps(self._location) == before:
            _replace_seal(self._location, content)


@contextmanager
def closing(location: Location) -> Iterator[None]:
    """Close the catalog in the body; then seal it, unless another process begins to write to it. Raise OSError."""
    with FolderLock(location.metadata) as folder:
        remove(location)
        yield
        if folder.is_alone(CLOSING_SECONDS) and not _is_in_use(location):
            _replace_seal(location, _of(location.metadata), is_synced=True)


@contextmanager
def opening(location: Location) -> Iterator[None]:
    """Open the catalog for writing in the `with` block; before it, remove a closed catalog's seal.

    Opening changes the catalog's header, so that the seal would no longer fit.
    """
    with FolderLock(location.metadata):
        if not _is_in_use(location) and is_sealed(location):
            remove(location)
            sync(os.path.dirname(location.metadata))  # else a power cut may bring it back beside a changed catalog
        yield


def remove(location: Location) -> None:
    """Remove the file with the catalog's sha256, because the catalog is about to change."""
    with suppress(OSError):
        os.remove(_path(location))


def is_sealed(location: Location) -> bool:
    """Return whether the catalog has a seal, whether it fits or not."""
    return os.path.exists(_path(location))


def check(location: Location) -> None:
    """Raise Damaged if the catalog differs from its seal. A catalog with an unchanged stamp is not hashed again."""
    if location.on_postgres or _is_right(location):
        return
    seen, since = "", time.monotonic()
    while True:
        with FolderLock(location.metadata) as folder:
            # A process that was stopped in a change, or changes without end, has removed the seal before.
            if not folder.is_alone(ALONE_SECONDS):
                return
            # Asked before the comparison: a log that a reader's end merges between the two is no damage.
            is_merged_by_none = folder.is_held and not _is_in_use(location)
            if _is_right(location):
                return
            if seen != (seen := _stamps(location)):
                since = time.monotonic()
        if is_merged_by_none or time.monotonic() - since > MERGING_SECONDS:
            raise Damaged(
                f"lake '{location.uri}': its catalog {location.metadata} is damaged: it is not as it was last written. "
                "Put it back from a copy of the lake, with its .seal; if another program was meant to change it, "
                "delete that."
            )
        time.sleep(0.02)


def _is_right(location: Location) -> bool:
    """Return whether the catalog has no seal, or fits it. Raise Damaged if it is gone."""
    sealed = _read(location)
    try:
        return sealed is None or _fits(location, sealed)
    except FileNotFoundError:
        raise Damaged(
            f"lake '{location.uri}': its catalog {location.metadata} is gone. Put it back from a copy of the lake; "
            "the data was not touched."
        ) from None


def _stamps(location: Location) -> str:
    """Return the stamps of the catalog, its write-ahead log and its seal; they change with any of the three."""
    found = []
    for path in (location.metadata, f"{location.metadata}-wal", _path(location)):
        with suppress(FileNotFoundError):
            found.append(file_stamp(path))
    return " ".join(found)


def _fits(location: Location, sealed: dict[str, Any]) -> bool:
    """Return whether the catalog matches its seal, as far as the two can be compared. Raise FileNotFoundError.

    They cannot be compared if only one of them has a write-ahead log (it was begun or merged since), or if the machine
    was rebooted since a writer sealed it.
    """
    log, is_in_use = sealed.get("log"), _is_in_use(location)
    if sealed.get("boot", host_since_boot()) != host_since_boot():
        return bool(file_stamp(location.metadata))
    if not isinstance(log, dict):
        return is_in_use or _is_whole(location.metadata, sealed)
    if not is_in_use:
        return bool(file_stamp(location.metadata))
    return _is_whole(location.metadata, sealed) and _is_whole(f"{location.metadata}-wal", log)


def _of(path: str) -> dict[str, str]:
    """Return the stamp and sha256 of a file."""
    return {"stamp": file_stamp(path), "sha256": file_digest(path)}


def _is_whole(path: str, sealed: dict[str, Any]) -> bool:
    """Return whether a file has the sealed stamp or, if not, the sealed sha256."""
    return sealed.get("stamp") == file_stamp(path) or sealed.get("sha256") == file_digest(path)


def _replace_seal(location: Location, content: dict[str, Any], is_synced: bool = False) -> None:
    """Replace the seal file atomically; with ``is_synced`` it is on the disk when this returns."""
    with whole_file(_path(location), is_synced) as half:
        half.write_text(json.dumps(content), encoding="utf-8")
    if is_synced:
        sync(os.path.dirname(location.metadata))


def _read(location: Location) -> dict | None:
    """Return the seal's content, {} if it is no JSON, None if there is none or only zeros, as a power cut leaves."""
    try:
        with open(_path(location), "rb") as file:
            text = file.read()
        if not text.strip(b"\0"):
            return None
        content = json.loads(text)
    except FileNotFoundError:
        return None
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _is_in_use(location: Location) -> bool:
    """Return whether there is a non-empty write-ahead log; closing the last connection merges it."""
    try:
        return os.path.getsize(f"{location.metadata}-wal") > 0
    except FileNotFoundError:
        return False


def _path(location: Location) -> str:
    """Return the path of the seal file."""
    return f"{location.metadata}.seal"


# A process that was stopped while it was alone must not hold up the others for longer.
STUCK_SECONDS = 5.0


class FolderLock:
    """Shared lock on the folder of ``path`` for the `with` block; `is_alone` makes it exclusive.

    The operating system ends a lock with its process, so that none is ever stale. It is of no use between machines, nor
    is SQLite. File systems without locks (some network mounts) are tolerated. ``is_held`` is False if the file system
    has no locks, or another process held it exclusively for STUCK_SECONDS.
    """

    def __init__(self, path: str) -> None:
        self._folder = os.path.dirname(path) or "."
        self._file = -1
        self.is_held = False

    def __enter__(self) -> Self:
        try:
            self._file = os.open(self._folder, os.O_RDONLY)
        except OSError:  # no such folder yet
            return self
        self.is_held = self._has(fcntl.LOCK_SH, STUCK_SECONDS)
        return self

    def is_alone(self, seconds: float = 0.0) -> bool:
        """Wait at most ``seconds`` until no other process holds the lock, and return whether it is now exclusive.

        True where the file system has no locks. If False, the lock is no longer held.
        """
        if self._file < 0 or not self.is_held:
            return True
        found = self._has(fcntl.LOCK_EX, seconds)
        self.is_held &= found
        return found

    def _has(self, kind: int, seconds: float) -> bool:
        """Take the lock; return whether that was possible within ``seconds``."""
        end = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(self._file, kind | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                if time.monotonic() >= end:
                    return False
                time.sleep(0.005)
            except OSError:  # the file system has no locks
                return False

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._file >= 0:
            os.close(self._file)
