"""Write a file so that it appears whole under its name, or not at all; locate and lock the caches of a machine."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: str | Path, is_synced: bool = False) -> Iterator[Path]:
    """Yield the path of a temporary file beside ``path`` for the body to write; at its end, rename it to ``path``.

    The temporary file is removed if the body raises. With ``is_synced`` its content is on the disk before the rename:
    else a power cut may leave an empty file under the final name. Two threads of a process may not write one file.
    """
    unfinished = Path(f"{path}.{os.getpid()}.part")
    try:
        yield unfinished
        if is_synced:
            with unfinished.open("rb") as file:
                os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def cache_home() -> Path:
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
