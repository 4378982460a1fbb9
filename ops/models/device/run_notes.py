"""Collect a process's notes for the user of its run: that a model works slower than it could, and why.

Nobody reads a worker's log. `tasks.run.pool.worker` sends the notes with an item's results.
"""

import threading

_LOCK = threading.Lock()
_NOTES: dict[str, None] = {}


def note(text: str) -> None:
    """Add a note for the run's user. An equal note that is still waiting is not repeated."""
    with _LOCK:
        _NOTES[text] = None


def take() -> tuple[str, ...]:
    """Return the notes since the last call, and clear them."""
    with _LOCK:
        found = tuple(_NOTES)
        _NOTES.clear()
    return found
