"""Run `pairmill up` as a process, and query its Prefect home."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

COMMAND = [sys.executable, "-m", "pairmill.flows.command.cli", "up"]


def environment(home: Path, api: str = "") -> dict[str, str]:
    """Return the environment with this Prefect home and, if given, this server."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return kept | {"PREFECT_HOME": str(home)} | ({"PREFECT_API_URL": api} if api else {})


@contextmanager
def staying(home: Path, lake: Path, api: str = "", port: int = 0) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yield the running `up` process and its server's address, once it is up."""
    # Processes started by a script in the background ignore SIGINT, and so do their children.
    chosen = ["--port", str(port)] if port else []
    child = subprocess.Popen([*COMMAND, "--lake", str(lake), *chosen], env=environment(home, api), text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # fmt: skip
    try:
        assert child.stdout is not None
        deadline, told = time.monotonic() + 300, ""
        while "Ctrl-C stops it" not in (line := child.stdout.readline()):
            told += line
            assert line and time.monotonic() < deadline, told + (child.communicate(timeout=120)[1] if not line else "")
        yield child, told.partition("PREFECT_API_URL=")[2].split()[0]
    finally:
        child.terminate()
        child.wait(120)


def asked(home: Path, sql: str) -> list[tuple]:
    """Query the Prefect database."""
    with sqlite3.connect(home / "prefect.db") as database:
        return database.execute(sql).fetchall()


def of(home: Path) -> list[int]:
    """List the processes that use this Prefect home."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("PREFECT_HOME") == str(home):
                found.append(process.pid)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def settled(home: Path, wanted: set[int]) -> bool:
    """Return whether exactly these processes use this home, waiting up to 60 s.

    A worker that stays may have taken the run; the run's process then ends.
    """
    deadline = time.monotonic() + 60
    while set(of(home)) != wanted and time.monotonic() < deadline:
        time.sleep(0.5)
    return set(of(home)) == wanted
