"""How often this process had to ask a distant place again: a run's end tells it, since retries cost time unseen."""

from __future__ import annotations

from threading import Lock

_lock = Lock()
_made = 0


def add(n: int = 1) -> None:
    global _made
    with _lock:
        _made += n


def made() -> int:
    """Requests to S3 and the web that were made again in this process, since it began."""
    return _made
