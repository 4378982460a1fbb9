"""Put a package with entry points where importlib finds it, without pip."""

import sys
from pathlib import Path

import pytest


def install(patch: pytest.MonkeyPatch, site: Path, package: str, group: str, points: dict[str, str]) -> None:
    """Declare the entry points of a package in the folder ``site``, and import from there."""
    information = site / f"{package}-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = "".join(f"{name} = {value}\n" for name, value in points.items())
    (information / "entry_points.txt").write_text(f"[{group}]\n{lines}")
    if str(site) not in sys.path:
        patch.syspath_prepend(str(site))
