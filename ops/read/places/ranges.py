"""A distant file to be read here and there: a range of some megabytes is asked for, and read from memory."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import IO

RANGE, CHUNK = 4 * 2**20, 2**20


class Ranges(io.RawIOBase):
    """A file of ``size`` bytes of which ``fetch(start, end)`` brings [start, end), whole or with an exception."""

    def __init__(self, size: int, fetch: Callable[[int, int], bytes]) -> None:
        self._size, self._fetch = size, fetch
        self._at, self._start, self._held = 0, 0, b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = max(0, offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence])
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer) -> int:
        if self._at >= self._size:
            return 0
        if not self._start <= self._at < self._start + len(self._held):
            end = min(self._at + max(RANGE, len(buffer)), self._size)
            self._held, self._start = self._fetch(self._at, end), self._at
        from_here = self._at - self._start
        data = memoryview(self._held)[from_here : from_here + len(buffer)]
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def buffered(size: int, fetch: Callable[[int, int], bytes]) -> IO[bytes]:
    return io.BufferedReader(Ranges(size, fetch), CHUNK)
