"""Count the requests to S3 and the web that this process made again: a run's end reports them, since they cost time."""

from __future__ import annotations

from threading import Lock

_lock = Lock()
_made = 0


def add(n: int = 1) -> None:
    """Count ``n`` repeated requests. Any thread may call it."""
    global _made
    with _lock:
        _made += n


def made() -> int:
    """Return the number of requests that were made again in this process since it began."""
    return _made
