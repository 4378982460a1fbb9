"""Lock the folder of a lake's catalog: shared by the processes that change the catalog, or held alone.

The operating system ends a lock with its process, so that none is ever stale. It is of no use between machines, nor is
SQLite. File systems without locks (some network mounts) are tolerated.
"""

import fcntl
import os
import time
from types import TracebackType
from typing import Self

# A process that was stopped while it was alone must not hold up the others for longer.
STUCK_SECONDS = 5.0


class FolderLock:
    """A lock of the folder of ``path``, shared with others from the beginning of a ``with`` statement to its end.

    Attributes:
        is_held: The file system has locks, and nobody who is alone has been stuck for STUCK_SECONDS.
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
        """Wait for the end of all others who hold the lock; return whether that came within ``seconds``.

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
