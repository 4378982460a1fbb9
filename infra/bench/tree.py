"""Measure CPU seconds and memory of a command and of every process that it starts, daemons included."""

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
# Names of Ray's own processes, which run on each machine; idle workers have the name ray::IDLE.
RAYS_OWN = (
    "raylet", "gcs_server", "ray/dashboard/", "ray/autoscaler/", "log_monitor", "runtime_env/agent", "::IDLE",
    "::DashboardAgent", "::RuntimeEnvAgent", "::_StatsActor", "::_AutoscalingCoordinatorActor",
    "::ActorLocationTracker",
)  # fmt: skip


@dataclass(frozen=True)
class Used:
    """Resource use: ``cpu`` and ``wall`` in seconds; peak memory of the tree in MB, shared pages counted once.

    ``beyond_ray_mb`` excludes Ray's own processes.
    """

    cpu: float
    wall: float
    peak_mb: float
    beyond_ray_mb: float


class Failed(RuntimeError):
    """The command ended with an error; the message has the end of its output."""


def run(command: Sequence[str], log: Path, env: Mapping[str, str] | None = None, memory: bool = False) -> Used:
    """Run ``command``, and wait for every process that it left behind.

    This process adopts orphans, so that the system sums the seconds of all processes that are waited for. A parent may
    discard its children's sums, as Ray does; then the seconds sampled every 0.1 s count instead.

    Raises:
        Failed: The command returned an error.
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
    """Return this process's descendants, without those that ran before the command, such as the bench's web server."""
    return [process for process in psutil.Process().children(recursive=True) if process.pid not in others]


def _look(seen: dict[tuple[int, float], float], others: frozenset[int], peaks: list[float] | None) -> None:
    """Sample CPU seconds, and memory if ``peaks`` is given, of the command's processes."""
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
            continue  # the process has ended
    if peaks is not None:
        peaks[:] = [max(pair) for pair in zip(peaks, sizes, strict=True)]


def _memory_mb(pid: int) -> float:
    """Return the proportional set size in MB: a page shared by n processes counts 1/n in each."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def _end_what_is_left(seen: dict[tuple[int, float], float], others: frozenset[int]) -> None:
    """Wait for the remaining processes; kill them after 10 s."""
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
