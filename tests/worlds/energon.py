"""An environment with Megatron-Energon, made once a test run: its 11 packages, beside torch of the test environment."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.worlds.shared import made_once

REQUIREMENTS = Path(__file__).with_suffix(".txt")
UV = str(Path(sys.executable).with_name("uv"))
OUT_OF_REACH = ("Failed to fetch", "error sending request", "dns error", "offline")


def energon_python() -> Path:
    """Return the interpreter of the environment; skip the test if no package registry is in reach. Takes 3 s, 6 MB."""
    return made_once("energon", _install) / "bin" / "python"


def _install(place: Path) -> None:
    """Make the environment. Packages of the test environment come after its own, and Pairmill is none of them."""
    _run(UV, "venv", "--python", sys.executable, str(place))
    (site,) = place.glob("lib/python*/site-packages")
    # A path that a .pth file adds is no site folder: the checkout's own .pth file in it is not read.
    (site / "tests.pth").write_text(f"{Path(sys.prefix) / site.relative_to(place)}\n")
    _run(UV, "pip", "install", "--python", str(place / "bin/python"), "--no-deps", "-r", str(REQUIREMENTS))


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode and any(said in done.stderr for said in OUT_OF_REACH):
        pytest.skip("no package registry is in reach")
    assert done.returncode == 0, done.stderr
