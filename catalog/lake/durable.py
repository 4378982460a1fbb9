"""Put files and their names on the disk, so that they outlive a power cut.

A synced file may still be gone after a power cut: its name belongs to its folder, which is synced by itself. Whatever
a commit names is synced before the COMMIT, which SQLite syncs.
"""

import os
from collections.abc import Iterable
from contextlib import suppress


def sync(path: str) -> None:
    """Sync a local file or folder. Does nothing where the file system cannot sync folders, or the path is gone."""
    with suppress(OSError):
        opened = os.open(path, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def make_folder(path: str) -> None:
    """Create a folder with its parents, and sync the name of each new one."""
    new = []
    at = os.path.abspath(path)
    while not os.path.isdir(at) and at != os.path.dirname(at):
        new.append(at)
        at = os.path.dirname(at)
    os.makedirs(path, exist_ok=True)
    for folder in reversed(new):
        sync(os.path.dirname(folder))


class SyncedNames:
    """Sync the names of files below ``root``. The names of folders are synced once; no other program removes them."""

    def __init__(self, root: str) -> None:
        self._root = root.rstrip("/")
        self._known: set[str] = set()

    def sync(self, files: Iterable[str]) -> None:
        """Sync the folder of each file (paths relative to ``root``), and the folders above that have new names."""
        changed = {os.path.dirname(file) for file in files}
        for folder in list(changed):
            while folder and folder not in self._known:
                self._known.add(folder)
                folder = os.path.dirname(folder)
                changed.add(folder)
        for folder in sorted(changed, reverse=True):
            sync(f"{self._root}/{folder}")
