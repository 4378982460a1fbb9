"""Locate the cache folder that the processes of a machine share, and lock its entries."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def folder() -> Path:
    """Return the folder of this user's caches, which may not exist yet.

    It is ``$XDG_CACHE_HOME/pairmill``, or ``~/.cache/pairmill`` if that variable is not set.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pairmill"


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Hold an exclusive lock on the file ``lock`` during the body. If it cannot be opened, run the body without it."""
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        held = lock.open("w")
    except OSError:
        yield
        return
    with held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
