"""CPU seconds and memory of a command and of every process that it starts, daemons included."""

from __future__ import annotations

import ctypes
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

PR_SET_CHILD_SUBREAPER = 36
SECONDS = 0.1
# What Ray runs for itself on each machine, busy or not; its waiting workers call themselves ray::IDLE.
RAYS_OWN = (
    "raylet", "gcs_server", "ray/dashboard/", "ray/autoscaler/", "log_monitor", "runtime_env/agent", "::IDLE",
    "::DashboardAgent", "::RuntimeEnvAgent", "::_StatsActor", "::_AutoscalingCoordinatorActor",
    "::ActorLocationTracker",
)  # fmt: skip


@dataclass(frozen=True)
class Used:
    """``cpu`` and ``wall`` in seconds; peaks of the tree's memory in MB, pages that processes share counted once.

    ``beyond_ray`` leaves out Ray's own processes.
    """

    cpu: float
    wall: float
    peak_mb: float
    beyond_ray_mb: float


class Failed(RuntimeError):
    """The command did not end well; the message holds the end of what it said."""


def run(command: Sequence[str], log: Path, env: Mapping[str, str] | None = None, memory: bool = False) -> Used:
    """Run ``command`` to its end, and to the end of all that it left behind. Raises Failed.

    Orphans become children of this process, so that the system adds up the seconds of all that are waited for; where a
    parent had its children's sums thrown away (Ray does), what was seen of them every 0.1 s is counted instead.
    """
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    others = frozenset(process.pid for process in psutil.Process().children(recursive=True))
    before, started = os.times(), time.perf_counter()
    seen: dict[tuple[int, float], float] = {}
    peaks = [0.0, 0.0]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=env)
        while process.poll() is None:
            time.sleep(SECONDS)
            _look(seen, others, peaks if memory else None)
    wall = time.perf_counter() - started
    _end_what_is_left(seen, others)
    if process.returncode:
        raise Failed(f"{' '.join(command)}: {log.read_text(errors='replace')[-2000:]}")
    after = os.times()
    waited = after.children_user + after.children_system - before.children_user - before.children_system
    return Used(max(waited, sum(seen.values())), wall, *peaks)


def _children(others: frozenset[int]) -> list[psutil.Process]:
    """Every process below this one but those that were there before the command (a web server that it asks, say)."""
    return [process for process in psutil.Process().children(recursive=True) if process.pid not in others]


def _look(seen: dict[tuple[int, float], float], others: frozenset[int], peaks: list[float] | None) -> None:
    sizes = [0.0, 0.0]
    for process in _children(others):
        try:
            times = process.cpu_times()
            seen[process.pid, process.create_time()] = times.user + times.system
            if peaks is not None:
                size = _memory_mb(process.pid)
                words = " ".join(process.cmdline())
                sizes[0] += size
                sizes[1] += 0 if any(name in words for name in RAYS_OWN) else size
        except (psutil.Error, OSError):
            continue  # it ended meanwhile
    if peaks is not None:
        peaks[:] = [max(pair) for pair in zip(peaks, sizes, strict=True)]


def _memory_mb(pid: int) -> float:
    """Proportional set size: a page that n processes share counts 1/n in each."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def _end_what_is_left(seen: dict[tuple[int, float], float], others: frozenset[int]) -> None:
    patience = time.monotonic() + 10
    while left := _children(others):
        _look(seen, others, None)
        if time.monotonic() > patience:
            for process in left:
                process.kill()
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            return
        time.sleep(SECONDS)
