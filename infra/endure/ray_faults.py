"""Faults of a run on a Ray cluster: kill -9 of a worker process, of an actor that supervises it, of a node's raylet."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress

import psutil

from infra.endure.fault_kinds import Victim

START_SECONDS, END_SECONDS = 180, 400


def _raylet(victim: Victim, process: psutil.Process) -> list[psutil.Process]:
    return [psutil.Process(int((victim.folder / "raylet").read_text()))]


def _actors(victim: Victim, process: psutil.Process) -> list[psutil.Process]:
    """Return the actors that have work, which show a method's name."""
    return [each for each in process.children(recursive=True) if " ".join(_words(each)).startswith("ray::Map")]


def _workers(victim: Victim, process: psutil.Process) -> list[psutil.Process]:
    """Return the worker processes that actors supervise."""
    return [each for actor in _actors(victim, process) for each in actor.children(recursive=True)]


def _words(process: psutil.Process) -> list[str]:
    with suppress(psutil.Error):
        return process.cmdline()
    return []


def killed(found: Callable[[Victim, psutil.Process], list[psutil.Process]]) -> Callable[[Victim], None]:
    """Return a fault: kill -9 of one of the processes that ``found`` lists, once there is one."""

    def strike(victim: Victim) -> None:
        source, lake = (victim.command[victim.command.index(name) + 1] for name in ("--source", "--lake"))
        settings = [each.removeprefix("--set=") for each in victim.command if each.startswith("--set=")]
        note = victim.folder / "raylet"
        process = victim.start([sys.executable, "-m", "infra.endure.ray_run", lake, source, str(note), *settings])
        below: list[psutil.Process] = []
        try:
            deadline = time.monotonic() + START_SECONDS
            while time.monotonic() < deadline and process.poll() is None:
                if note.exists() and _actors(victim, psutil.Process(process.pid)):
                    time.sleep(victim.seconds * victim.chance.uniform(0, 1))
                    if targets := found(victim, psutil.Process(process.pid)):
                        victim.chance.choice(targets).kill()
                        break
                time.sleep(0.2)
            below = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
            process.wait(timeout=END_SECONDS)
        finally:
            process.kill()
            for each in below:
                with suppress(psutil.Error):
                    each.kill()

    return strike


RAY: dict[str, Callable[[Victim], None]] = {
    "kill -9 of a Ray worker's process": killed(_workers),
    "kill -9 of a Ray actor": killed(_actors),
    "kill -9 of a second node's raylet": killed(_raylet),
}
