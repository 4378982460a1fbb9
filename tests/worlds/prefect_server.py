"""One Prefect server for all processes of a test run; the first user starts it, the last one stops it."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from filelock import FileLock

from pairmill.flows.with_prefect.local_prefect import answers, free_port
from pairmill.flows.with_prefect.processes import start, wait_for
from tests.worlds import shared


@contextmanager
def prefect_server() -> Iterator[str]:
    """Yield the address of the server, which other processes use at the same time."""
    assert shared.PLACE
    lock, note = FileLock(shared.PLACE / "prefect.lock"), shared.PLACE / "prefect.json"
    with lock:
        held = json.loads(note.read_text()) if note.exists() else _started(shared.PLACE / "prefect")
        note.write_text(json.dumps(held | {"users": held["users"] + 1}))
    try:
        yield held["api"]
    finally:
        with lock:
            held = json.loads(note.read_text())
            if held["users"] > 1:
                note.write_text(json.dumps(held | {"users": held["users"] - 1}))
            else:
                note.unlink()
                _stop(held["pid"])


def _started(folder: Path) -> dict:
    """Start the server; return its process id, address and number of users."""
    port = free_port(0)
    api = f"http://127.0.0.1:{port}/api"
    command = ["prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    environment = {"PREFECT_API_URL": api, "PREFECT_HOME": str(folder), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    child = start("prefect server", command, environment, folder, folder)
    wait_for(child, lambda: answers(api), 300)
    return {"pid": child.process.pid, "api": api, "users": 0}


def _stop(pid: int) -> None:
    """Kill the server, which leads its own session, whoever started it. Told to stop, it waits 30 s for clients."""
    family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    os.killpg(pid, signal.SIGKILL)
    psutil.wait_procs(family, timeout=30)
