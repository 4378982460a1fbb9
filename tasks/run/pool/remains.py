"""Remove the temporary folders that `multiprocessing` made for processes that were killed.

A process needs its folder until it ends: each fork server, and the queues of other libraries, make their sockets there.
A process therefore locks a file in its folder. The operating system ends the lock with the process, and a folder whose
file is not locked is removed.
"""

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from multiprocessing.util import get_temp_dir
from pathlib import Path

HOLDER = "pairmill-holder"
_held: dict[Path, int] = {}


def hold() -> None:
    """Lock this process's folder, so that no other process removes it."""
    folder = Path(get_temp_dir())
    if folder in _held:
        return
    new = folder / f"{HOLDER}-{os.getpid()}"
    with suppress(OSError):  # a file system without locks: the folder is never removed by another process
        _held[folder] = os.open(new, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(_held[folder], fcntl.LOCK_EX | fcntl.LOCK_NB)
        new.rename(folder / HOLDER)  # locked before others can see it


def sweep() -> None:
    """Remove the folders of processes that have ended. A folder without the file HOLDER is not ours, and stays."""
    for held in Path(tempfile.gettempdir()).glob(f"pymp-*/{HOLDER}"):
        if held.parent not in _held and _is_free(held):
            shutil.rmtree(held.parent, ignore_errors=True)


def _is_free(held: Path) -> bool:
    """Return whether the process that locked the file has ended. False if the file is another user's."""
    try:
        number = os.open(held, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(number)
    return True
