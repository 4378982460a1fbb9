"""Collect what a process must tell the user of its run: that a model works slower than it could, and why.

A worker's log is read by nobody. `tasks.run.pool.worker` sends the notes with an item's results.
"""

from __future__ import annotations

import threading

_LOCK = threading.Lock()
_NOTES: dict[str, None] = {}


def note(text: str) -> None:
    """Add a note. An equal note that is not taken yet is not doubled."""
    with _LOCK:
        _NOTES[text] = None


def take() -> tuple[str, ...]:
    """Return the notes since the last call, and forget them."""
    with _LOCK:
        found = tuple(_NOTES)
        _NOTES.clear()
    return found
