"""Report the rows of a running item whose results exist, so that progress need not wait for the whole item.

Captions on a laptop take seconds each, and an item has up to 512. The rows are only shown: an item is committed whole.
"""

import threading
from collections import Counter
from collections.abc import Callable

Report = Callable[[int], None]

_listener: list[Report] = []


def ignore(rows: int) -> None:
    """Ignore finished rows."""
    return None


def listen(listener: Report) -> None:
    """Set the worker process's listener, called with a number of rows; it replaces the previous one."""
    _listener[:] = [listener]


def report(rows: int) -> None:
    """Report that ``rows`` more rows of the item that runs alone in this process are finished."""
    for listener in _listener:
        listener(rows)


class RowsAhead:
    """Count the finished rows of items that are still being worked on. Any thread may add to it."""

    def __init__(self) -> None:
        self._rows: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, item: str, rows: int) -> None:
        """Add finished rows of an item."""
        with self._lock:
            self._rows[item] += rows

    def end(self, item: str) -> None:
        """Forget an item: it is finished, or its rows are computed again."""
        with self._lock:
            self._rows.pop(item, None)

    def total(self) -> int:
        """Return the finished rows of all unfinished items."""
        with self._lock:
            return self._rows.total()
