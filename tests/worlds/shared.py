"""Resources that the processes of one test run share: worlds, models and lakes, each made by its first user.

Shared resources are read or copied, never changed. A script that a test starts shares nothing.
"""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from filelock import FileLock

from pairmill.catalog.lake import seal
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.location import locate
from pairmill.catalog.lake.opening import create_or_open

PLACE: Path | None = None


def made_once(name: str, make: Callable[[Path], object]) -> Path:
    """Return the file or folder ``name``, made by one process while others wait; a failed attempt is repeated."""
    assert PLACE
    place, done = PLACE / name, PLACE / f"{name}.done"
    with FileLock(PLACE / f"{name}.lock"):
        if not done.exists():
            shutil.rmtree(place, ignore_errors=True)
            make(place)
            done.touch()
    return place


def new_lake(folder: Path | str) -> Path:
    """Return an empty lake at ``folder`` unless something exists there. A copy saves 1 s of CPU time."""
    folder = Path(folder)
    if PLACE and not folder.exists():
        shutil.copytree(made_once("empty-lake", lambda place: create_or_open(place).close()), folder)
    return folder


def opened_new(folder: Path | str) -> Lake:
    """Open an empty lake at ``folder`` for writing."""
    return create_or_open(new_lake(folder))


def copied(lake: Path, to: Path) -> Path:
    """Copy a lake; set the path of its data in the copied catalog, and seal that. Opening it would take 0.2 CPU s."""
    shutil.copytree(lake, to)
    location = locate(to)
    place = "UPDATE ducklake_metadata SET value = ? WHERE key = 'data_path' AND scope IS NULL"
    with seal.closing(location), closing(sqlite3.connect(location.metadata)) as catalog, catalog:
        assert catalog.execute(place, (location.data_path,)).rowcount == 1
    return to
