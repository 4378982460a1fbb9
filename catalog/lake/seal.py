"""Seal a lake's SQLite catalog: its sha256 in a file beside it, which all who open the lake check.

SQLite checks no page: a byte changed in a row is another row. Whoever closes a lake last seals it. While a lake is
written to, every change takes the seal away and puts a new one there: a killed run leaves a sealed catalog but for
milliseconds. To hash it takes 0.7 s a GB, and at most a twentieth of the time: up to 300 MB (some 300,000 partitions)
each change is sealed, a larger catalog less often, at the latest with a heartbeat.

A write-ahead log (one is left while somebody else reads) is sealed for this boot of this machine alone: after a power
cut nobody knows which of the files reached the disk.
"""

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pairmill.catalog.lake.digest import file_digest, file_stamp
from pairmill.catalog.lake.host import host_since_boot
from pairmill.catalog.lake.location import Location
from pairmill.catalog.terms.error import Damaged

SHARE = 20  # a change is sealed when the last sealing is this many times its duration ago
# How long a seal that does not fit may be another process's that is just being replaced.
PATIENCE_SECONDS = 0.3


class Seal:
    """The seal of an open catalog, for the threads of one process that write to it."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._lock = threading.RLock()
        self._due = 0.0  # by the monotonic clock

    @contextmanager
    def broken(self) -> Iterator[None]:
        """Change the catalog in the body: it has no seal meanwhile, and a new one behind it."""
        with self._lock:
            remove(self._location)
            try:
                yield
            finally:
                began = time.monotonic()
                if began >= self._due:
                    with suppress(OSError):
                        self._write()
                    self._due = time.monotonic() + SHARE * (time.monotonic() - began)

    def _write(self) -> None:
        log = f"{self._location.metadata}-wal"
        content: dict[str, Any] = _of(self._location.metadata)
        if _is_in_use(self._location):
            content["log"] = {"boot": host_since_boot(), **_of(log)}
        _put(self._location, content)


def write(location: Location) -> None:
    """Seal the catalog that was closed, unless another process has just begun to write to it. Raises OSError."""
    _put(location, _of(location.metadata))
    if _is_in_use(location):
        remove(location)


def remove(location: Location) -> None:
    """Remove the seal: the catalog is going to change."""
    with suppress(OSError):
        os.remove(_path(location))


def remove_of_closed(location: Location) -> None:
    """Remove the seal of a catalog that nobody has open: to open it for writing changes its header."""
    if not _is_in_use(location):
        remove(location)


def check(location: Location) -> None:
    """Raise Damaged when the catalog is not what was sealed. One that no program has touched is not read again."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not location.on_postgres and (sealed := _read(location)) is not None:
        try:
            if _fits(location, sealed):
                return
        except FileNotFoundError:
            raise Damaged(
                f"lake '{location.uri}': its catalog {location.metadata} is gone. Put it back from a copy of the lake; "
                "the data was not touched."
            ) from None
        # One who began to write meanwhile has taken the seal away, or put another one there.
        if _read(location) == sealed and time.monotonic() > deadline:
            raise Damaged(
                f"lake '{location.uri}': its catalog {location.metadata} is damaged: it is not as it was last written. "
                "Put it back from a copy of the lake, with its .seal; if another program was meant to change it, "
                "delete that."
            )
        time.sleep(0.02)


def _fits(location: Location, sealed: dict[str, Any]) -> bool:
    """Whether the catalog is what was sealed, as far as the two can be compared. Raises FileNotFoundError.

    They cannot where it has a log now and had none when it was sealed, or the other way round (the log was merged), or
    where the machine was started since a log was sealed.
    """
    log, is_in_use = sealed.get("log"), _is_in_use(location)
    if not isinstance(log, dict):
        return is_in_use or _is_whole(location.metadata, sealed)
    if not is_in_use or log.get("boot") != host_since_boot():
        return bool(file_stamp(location.metadata))
    return _is_whole(location.metadata, sealed) and _is_whole(f"{location.metadata}-wal", log)


def _of(path: str) -> dict[str, str]:
    return {"stamp": file_stamp(path), "sha256": file_digest(path)}


def _is_whole(path: str, sealed: dict[str, Any]) -> bool:
    return sealed.get("stamp") == file_stamp(path) or sealed.get("sha256") == file_digest(path)


def _put(location: Location, content: dict[str, Any]) -> None:
    half = f"{_path(location)}.{os.getpid()}.part"
    with open(half, "w", encoding="utf-8") as file:
        json.dump(content, file)
    os.replace(half, _path(location))


def _read(location: Location) -> dict | None:
    """Return what the seal says; None without one, {} for one that is no JSON."""
    try:
        with open(_path(location), "rb") as file:
            content = json.loads(file.read())
    except FileNotFoundError:
        return None
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _is_in_use(location: Location) -> bool:
    """Whether there is a log with changes: they are merged when the last connection is closed."""
    try:
        return os.path.getsize(f"{location.metadata}-wal") > 0
    except FileNotFoundError:
        return False


def _path(location: Location) -> str:
    return f"{location.metadata}.seal"
