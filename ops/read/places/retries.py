"""Count the requests to S3 and the web that this process has retried; a run reports the count at its end."""

from threading import Lock

_lock = Lock()
_made = 0


def add(n: int = 1) -> None:
    """Count ``n`` retried requests. Thread-safe."""
    global _made
    with _lock:
        _made += n


def count() -> int:
    """Return the number of requests that this process has retried since it started."""
    return _made
