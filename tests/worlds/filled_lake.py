"""One random lake, filled once a test run, to be copied; and the files of facts of a copy."""

import shutil
from pathlib import Path

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from tests.worlds.random_lake import fill, world
from tests.worlds.shared import made_once


def lake_of(path: Path) -> Lake:
    shutil.copytree(made_once("filled-lake", _filled), path / "lake")
    return create_or_open(path / "lake")


def _filled(place: Path) -> None:
    with create_or_open(place) as lake:
        fill(lake, *world(7))


def kept(path: Path) -> dict[str, int]:
    """The files of facts of a lake, and when each was written."""
    return {file.name: file.stat().st_mtime_ns for file in (path / "lake/.facts").iterdir()}
