"""Run a script on a small disk of its own, which it can fill: a tmpfs in a mount namespace of its own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ISOLATED = ["unshare", "--mount", "--map-root-user"]


def on_small_disk(module: str, folder: Path, megabytes: int, *arguments: str) -> str:
    """Run ``python -m module DISK ARGUMENT …`` and return what it printed; skips where no disk can be mounted."""
    if shutil.which("unshare") is None or subprocess.run([*ISOLATED, "true"], capture_output=True).returncode:
        pytest.skip("no small disk can be mounted here")
    folder.mkdir(exist_ok=True)
    mounted = f'mount -t tmpfs -o size={megabytes}m none "$0" && exec "$@"'
    command = [sys.executable, "-m", module, str(folder), *arguments]
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [*ISOLATED, "sh", "-c", mounted, str(folder), *command],
        capture_output=True, text=True, cwd=root, env=os.environ | {"PYTHONPATH": root}, timeout=300,
    )  # fmt: skip
    if "mount:" in done.stderr:
        pytest.skip("no small disk can be mounted here")
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


class Filler:
    """A file that takes what a disk has left, but for ``left`` bytes."""

    def __init__(self, disk: Path) -> None:
        self._path = disk / "filler"

    def fill(self, left: int = 0) -> None:
        with open(self._path, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                file.truncate(max(0, file.tell() - left))

    def free(self) -> None:
        self._path.unlink()
