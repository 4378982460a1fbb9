"""Run a curation in a separate process that is killed within a step."""

import subprocess
import sys
from pathlib import Path


def killed(lake: Path, pages: Path, step: str, settings: dict[str, str]) -> None:
    """Run a curation in a separate process that is killed after the second commit of ``step``."""
    command = [sys.executable, "-m", "tests.worlds.line", str(lake), str(pages), step]
    command += [f"{key}={value}" for key, value in settings.items()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == -9, f"{step}: {done.stderr[-2000:]}"
