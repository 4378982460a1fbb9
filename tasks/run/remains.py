"""Remove the temporary folders of `multiprocessing` that killed runs have left.

A process has one such folder for as long as it lives, also after its fork server has died: the next fork server and the
queues of other libraries bind their sockets in it. So each process holds a locked file in its folder, and a folder goes
when nobody holds the lock.
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
    """Keep this process' temporary folder of `multiprocessing` until the process ends."""
    folder = Path(get_temp_dir())
    if folder in _held:
        return
    new = folder / f"{HOLDER}-{os.getpid()}"
    with suppress(OSError):  # a file system without locks: the folder is never removed by another process
        _held[folder] = os.open(new, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(_held[folder], fcntl.LOCK_EX | fcntl.LOCK_NB)
        new.rename(folder / HOLDER)  # locked before others can see it


def sweep() -> None:
    """Remove the held folders of processes that have ended. What has no `HOLDER` is not ours."""
    for held in Path(tempfile.gettempdir()).glob(f"pymp-*/{HOLDER}"):
        if held.parent not in _held and _is_free(held):
            shutil.rmtree(held.parent, ignore_errors=True)


def _is_free(held: Path) -> bool:
    """Return whether no process holds the lock. False for files of other users."""
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
