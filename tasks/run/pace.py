"""Tell how many workers the rest of a stage is worth, from how long its items took so far."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import floor
from typing import ClassVar


class Pace:
    """The seconds that a stage's items took so far, also those that are not finished."""

    # What another worker costs before its first row: to be forked and to load a small CLIP or captioner takes 0.6 to
    # 1.3 CPU seconds. One is started for each so many seconds of work that are left: more would not pay for it.
    START_SECONDS: ClassVar[float] = 2.0
    LOOK_SECONDS: ClassVar[float] = 0.25

    def __init__(self) -> None:
        self._finished, self._seconds = 0, 0.0
        self._began: dict[int, float] = {}
        self._lock = threading.Lock()

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Count the body as one item."""
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
        """Return how many workers ``left`` items are worth, those under way included."""
        now = time.monotonic()
        with self._lock:
            under_way = sum(now - began for began in self._began.values())
            return wanted(self._seconds + under_way, self._finished, left)


def wanted(seconds: float, finished: int, left: int) -> int:
    """Return how many workers to have when ``finished`` items took ``seconds`` and ``left`` items are left: 1 at
    least. Before one is finished, an item is taken to last as long as the first has until now."""
    return max(1, floor(seconds / max(1, finished) * left / Pace.START_SECONDS))
