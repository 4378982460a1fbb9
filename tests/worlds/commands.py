"""Run `pairmill` commands, also with a standard output that nobody reads."""

import os
import subprocess
import sys
from collections.abc import Callable

Tell = Callable[..., str]


def run_unread(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """Run `pairmill` in a process whose standard output is a closed pipe."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "pairmill.flows.command.cli", *arguments]
    try:
        return subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, timeout=300)
    finally:
        os.close(write)
