"""Report a worker's current row and time limit; its supervisor kills a worker that exceeds the limit.

The limits are far above what any honest row takes: they end what would never end. Without a listener, reports are
dropped.
"""

import time
from collections.abc import Callable

# For an item whose job reports no progress: a range of clusters is one row, and compares millions.
ITEM_SECONDS, ROW_SECONDS = 6 * 3600.0, 120.0
# For one unit of a source, and again for each further document of it: even a remote source sends a megabyte a second.
UNIT_SECONDS, UNIT_BYTES_PER_SECOND = 900.0, 1_000_000

Listener = Callable[[str, float], None]
_listener: list[Listener] = []
_told = [0.0]


def of_item(rows: int) -> float:
    """Return the seconds that an item of ``rows`` rows may take before its job reports progress."""
    return ITEM_SECONDS + ROW_SECONDS * rows


def of_unit(size: int) -> float:
    """Return the seconds that a unit of ``size`` bytes may take until its next document."""
    return UNIT_SECONDS + size / UNIT_BYTES_PER_SECOND


def listen(listener: Listener) -> None:
    """Set the process-wide listener, called as ``listener(key, seconds)``; it replaces the previous one."""
    _listener[:] = [listener]


def begin(key: str, seconds: float) -> None:
    """Report that row ``key`` ('' for several rows) begins, and that the next report follows within ``seconds``."""
    _told[0] = time.monotonic()
    for listener in _listener:
        listener(key, seconds)


def go_on(key: str, seconds: float) -> None:
    """Report progress within row ``key``, at most once a second."""
    if time.monotonic() - _told[0] > 1:
        begin(key, seconds)
