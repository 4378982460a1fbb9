"""Run `pairmill` commands, also with a standard output that nobody reads."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

from tests.worlds.generated import ROOT

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


class Ended(NamedTuple):
    """A command at its end: its exit status and what it printed."""

    status: int
    out: str
    err: str


def run_in_one_process(commands: list[list[str]], *paths: Path) -> list[Ended]:
    """Run `pairmill` commands one after the other in a new process, in which ``paths`` are searched for modules first.

    A process of its own for each command would import the same libraries again, for 1 to 3 CPU s.
    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(str(path) for path in (*paths, ROOT))}
    asked = [sys.executable, "-m", "tests.worlds.commands", json.dumps(commands)]
    done = subprocess.run(asked, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return [Ended(*each) for each in json.loads(done.stdout)]


def _run_each(commands: list[list[str]]) -> None:
    """Run each command; print a JSON list of their exit statuses and outputs."""
    from pairmill.flows.command.cli import main

    found = []
    for command in commands:
        with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
            status = main(command)
        found.append((status, out.getvalue(), err.getvalue()))
    print(json.dumps(found))


if __name__ == "__main__":
    _run_each(json.loads(sys.argv[1]))
