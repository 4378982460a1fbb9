"""Compute how many workers the remaining items of a stage justify, from the durations so far."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import floor
from typing import ClassVar


class Pace:
    """Durations of a stage's items so far, unfinished items included, in seconds. Thread-safe."""

    # One worker is justified per START_SECONDS of remaining work: forking it and loading a small CLIP or captioner
    # takes 0.6 to 1.3 CPU seconds before its first row.
    START_SECONDS: ClassVar[float] = 2.0
    LOOK_SECONDS: ClassVar[float] = 0.25

    def __init__(self) -> None:
        self._finished, self._seconds = 0, 0.0
        self._began: dict[int, float] = {}
        self._lock = threading.Lock()

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Time the body as one item."""
        thread = threading.get_ident()
        with self._lock:
            began = self._began[thread] = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                del self._began[thread]
                self._finished += 1
                self._seconds += time.monotonic() - began

    def workers(self, left: int) -> int:
        """Return the number of workers that ``left`` items justify, running items included."""
        now = time.monotonic()
        with self._lock:
            under_way = sum(now - began for began in self._began.values())
            return wanted(self._seconds + under_way, self._finished, left)


def wanted(seconds: float, finished: int, left: int) -> int:
    """Return the number of workers, at least 1, for ``left`` items when ``finished`` items took ``seconds``.

    Until an item has finished, the seconds so far count as the duration of one item.
    """
    return max(1, floor(seconds / max(1, finished) * left / Pace.START_SECONDS))
