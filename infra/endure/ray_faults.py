"""Faults of a run whose models work on Ray: kills of an actor, and of the worker process that an actor supervises.

As a script it is such a run: ``python -m infra.endure.ray_faults run RECIPE …`` starts Ray on this machine. Rounds
without a model stay off Ray, since each stage on it takes seconds to begin.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress

import psutil

from infra.endure.fault_kinds import Victim
from pairmill.flows.command.cli import main
from pairmill.tasks.run import stage

ACTOR = "MapWorker(MapBatches(pairmill model"  # in the title of the process of an actor
PATIENCE_SECONDS = 300


def killed(is_actor: bool) -> Callable[[Victim], None]:
    """Return a fault: kill -9 of an actor, or of its worker process, once a model works on Ray."""

    def strike(victim: Victim) -> None:
        process = victim.start([sys.executable, "-m", "infra.endure.ray_faults", *victim.command[3:]])
        found = _first(process.pid, is_actor)
        if found:
            time.sleep(victim.chance.uniform(0, 3))
            with suppress(psutil.NoSuchProcess):
                found.kill()
        process.wait(timeout=600)
        assert found, (victim.folder / "run.log").read_text()[-2000:]

    return strike


def _first(pid: int, is_actor: bool) -> psutil.Process | None:
    """Wait for an actor below a process, or for its worker process; None if that process ends before."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        with suppress(psutil.NoSuchProcess):
            run = psutil.Process(pid)
            if run.status() == psutil.STATUS_ZOMBIE:
                return None
            for each in run.children(recursive=True):
                if ACTOR in " ".join(each.cmdline()):
                    below = [each] if is_actor else each.children()
                    if below:
                        return below[-1]
        time.sleep(0.1)
    return None


RAY: dict[str, Callable[[Victim], None]] = {
    "kill -9 of a Ray worker": killed(is_actor=False),
    "kill -9 of a Ray model actor": killed(is_actor=True),
}


def _run(arguments: list[str]) -> int:
    """Run `pairmill` with the rounds of models alone on Ray."""
    stage.JobStage._stays_here = lambda self, items: not self.model
    return main([*arguments, "--ray", "local", "--workers", "2"])


if __name__ == "__main__":
    sys.exit(_run(sys.argv[1:]))
