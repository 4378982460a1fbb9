"""Say what a worker is at, so that no row takes for ever: who supervises it ends it when its time is over.

The limits are far above what any honest row takes: they end what would never end. Nobody listens on Ray.
"""

import time
from collections.abc import Callable

# An item whose job says nothing on its way: a range of clusters is one row, and compares millions.
ITEM_SECONDS, ROW_SECONDS = 6 * 3600.0, 120.0
# One unit of a source, and each further document of it: a megabyte a second comes even from far away.
UNIT_SECONDS, UNIT_BYTES_PER_SECOND = 900.0, 1_000_000

Listener = Callable[[str, float], None]
_listener: list[Listener] = []
_told = [0.0]


def of_item(rows: int) -> float:
    """Return the seconds that an item of ``rows`` rows has for itself, until its job says how far it is."""
    return ITEM_SECONDS + ROW_SECONDS * rows


def of_unit(size: int) -> float:
    """Return the seconds that a unit of ``size`` bytes has until its next document."""
    return UNIT_SECONDS + size / UNIT_BYTES_PER_SECOND


def listen(listener: Listener) -> None:
    """Have ``listener(key, seconds)`` called in this process, in place of the one before."""
    _listener[:] = [listener]


def begin(key: str, seconds: float) -> None:
    """Say that this worker begins with row ``key`` ('' for several) and says more within ``seconds``, or is stuck."""
    _told[0] = time.monotonic()
    for listener in _listener:
        listener(key, seconds)


def go_on(key: str, seconds: float) -> None:
    """Say, at most once a second, that it is still at ``key`` and has done a part of it."""
    if time.monotonic() - _told[0] > 1:
        begin(key, seconds)
