"""Provide copies of one random lake that is filled once a test run, and the fact files of a copy."""

import shutil
from pathlib import Path

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from tests.worlds.random_lake import fill, world
from tests.worlds.shared import made_once


def lake_of(path: Path) -> Lake:
    """Copy the filled lake to ``path``/lake and open it."""
    shutil.copytree(made_once("filled-lake", _filled), path / "lake")
    return create_or_open(path / "lake")


def _filled(place: Path) -> None:
    with create_or_open(place) as lake:
        fill(lake, *world(7))


def kept(path: Path) -> dict[str, int]:
    """Return the modification time (ns) of each fact file of a lake."""
    return {file.name: file.stat().st_mtime_ns for file in (path / "lake/.facts").iterdir()}
