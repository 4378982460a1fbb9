"""What the processes of one test run share: worlds, models and lakes, each made by the process that needs it first.

What is shared is read or copied, never changed. In a script that a test starts there is nothing shared.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open

PLACE: Path | None = None


def made_once(name: str, make: Callable[[Path], object]) -> Path:
    """The file or folder ``name``, made by one process while the others wait; one that failed is made again."""
    assert PLACE
    place, done = PLACE / name, PLACE / f"{name}.done"
    with FileLock(PLACE / f"{name}.lock"):
        if not done.exists():
            shutil.rmtree(place, ignore_errors=True)
            make(place)
            done.touch()
    return place


def new_lake(folder: Path | str) -> Path:
    """An empty lake at ``folder``, unless something is there: a copy costs 1 s of CPU time less than making one."""
    folder = Path(folder)
    if PLACE and not folder.exists():
        shutil.copytree(made_once("empty-lake", lambda place: create_or_open(place).close()), folder)
    return folder


def opened_new(folder: Path | str) -> Lake:
    """The empty lake at ``folder``, open for writing."""
    return create_or_open(new_lake(folder))


def copied(lake: Path, to: Path) -> Path:
    """A copy of a lake that reads its own files: opened for writing once, it tells plain readers where these are."""
    shutil.copytree(lake, to)
    with create_or_open(to) as opened:
        files = [path for (path,) in opened.query("SELECT data_file FROM ducklake_list_files('lake', 'documents')")]
    assert files and all(Path(path).is_relative_to(to) for path in files)
    return to
