"""Report the progress of a running item to the supervisor of its worker: current row, time limit and finished rows.

The supervisor kills a worker that exceeds its limit. The limits are far above the duration of any good row: they end
work that would never end. Finished rows are only shown, because captions on a laptop take seconds each, and an item,
which is committed whole, has up to 512. Without listeners, reports are dropped.
"""

import time
from collections.abc import Callable

# For an item whose job reports no progress: a range of clusters is one row, and compares millions.
ITEM_SECONDS, ROW_SECONDS = 6 * 3600.0, 120.0
# For one unit of a source, and again for each further document of it: even a remote source sends a megabyte a second.
UNIT_SECONDS, UNIT_BYTES_PER_SECOND = 900.0, 1_000_000

Begun = Callable[[str, float], None]
Finished = Callable[[int], None]
_listeners: list[tuple[Begun, Finished]] = []
_reported_at = [0.0]


def item_seconds(rows: int) -> float:
    """Return the time limit in seconds for an item of ``rows`` rows until its job first reports progress."""
    return ITEM_SECONDS + ROW_SECONDS * rows


def unit_seconds(size: int) -> float:
    """Return how many seconds a source unit (file or archive) of ``size`` bytes may take to yield its next document."""
    return UNIT_SECONDS + size / UNIT_BYTES_PER_SECOND


def listen(begun: Begun, finished: Finished) -> None:
    """Set the process-wide listeners, called as ``begun(key, seconds)`` and ``finished(rows)``."""
    _listeners[:] = [(begun, finished)]


def begin(key: str, seconds: float) -> None:
    """Report that row ``key`` ('' for several rows) begins, and that the next report follows within ``seconds``."""
    _reported_at[0] = time.monotonic()
    for begun, _ in _listeners:
        begun(key, seconds)


def go_on(key: str, seconds: float) -> None:
    """Report progress within row ``key``, which renews its limit of ``seconds``; at most one report a second."""
    if time.monotonic() - _reported_at[0] > 1:
        begin(key, seconds)


def finish(rows: int) -> None:
    """Report that ``rows`` more rows of the process's only running item are finished."""
    for _, finished in _listeners:
        finished(rows)
