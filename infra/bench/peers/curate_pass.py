"""Run the recipe `demo` as a whole: ``python -m infra.bench.peers.curate_pass bare|pool LAKE OUT SOURCE ...``.

``pool`` is a normal run. ``bare`` calls the same jobs on the same items in one process per CPU, with nothing else
running: two CPUs may be threads of one core, where a second busy one slows the first. OUT is a JSON file: per step wall
seconds and CPU seconds of this process; with ``bare`` also the CPU seconds inside the ops.
"""

import functools
import json
import multiprocessing
import os
import pickle
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from pairmill.flows.curate import curate_steps
from pairmill.flows.run.run_start import session
from pairmill.flows.run.settings import Compute, load_recipe
from pairmill.tasks.relate import cluster, duplicates
from pairmill.tasks.run.items.partition import Part, write_parts
from pairmill.tasks.run.pool import fork_server
from pairmill.tasks.run.stage import JobStage

# Ops that run in the flow process, by the module whose attribute the tasks call.
GLOBAL_OPS = ((cluster.kmeans, "train"), (duplicates.hamming, "hamming_edges"), (duplicates.components, "recut"))


class Clock:
    """Sum CPU seconds of the ops by step: those inside the step's jobs, and those of global ops."""

    def __init__(self) -> None:
        self.step = ""
        self.ops: dict[str, float] = defaultdict(float)
        self.steps: dict[str, dict[str, float]] = {}

    def timed(self, work: Callable) -> Callable:
        """Wrap a global op so that its CPU seconds count for the current step."""

        def call(*args: Any, **options: Any) -> Any:
            started = time.process_time()
            try:
                return work(*args, **options)
            finally:
                self.ops[self.step] += time.process_time() - started

        return call

    def do(self, step: Callable, held: Any) -> Any:
        """Run a step and record its CPU and wall seconds."""
        self.step = step.__name__
        cpu, wall = time.process_time(), time.perf_counter()
        answer = step(held)
        self.steps[self.step] = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
        return answer


@functools.lru_cache(maxsize=4)
def _unpickled(payload: bytes) -> tuple:
    """Unpickle a (job, output) pair, cached."""
    return pickle.loads(payload)


def _seconds_of(work: tuple[bytes, Any]) -> tuple[float, list]:
    """Run a job on one item, in a worker process.

    Returns:
        CPU seconds inside the job, without writing its output, and the manifests of the output.
    """
    payload, item = work
    job, output = _unpickled(payload)
    seconds = 0.0

    def made() -> Iterator[Part]:
        nonlocal seconds
        started = time.process_time()
        parts = iter(job(item))
        while True:
            part = next(parts, None)
            seconds += time.process_time() - started
            if part is None:
                return
            yield part
            started = time.process_time()

    manifests = write_parts(made(), item, output)
    return seconds, manifests


def _begin() -> None:
    torch.set_num_threads(1)


def main(how: str, lake: str, out: str, *sources: str) -> None:
    """Run the recipe and write OUT."""
    clock = Clock()
    if how == "bare":
        torch.set_num_threads(1)
        fork_server.start_fork_server()
        cores = len(os.sched_getaffinity(0))
        processes = multiprocessing.get_context("forkserver").Pool(cores, _begin)

        def run(self: JobStage, items: Any, output: Any, show_ahead: Any = None) -> Iterator[list]:
            payload = pickle.dumps((self._job, output))
            for seconds, manifests in processes.imap_unordered(_seconds_of, ((payload, item) for item in items)):
                clock.ops[clock.step] += seconds
                yield manifests

        JobStage.run = run
        for module, name in GLOBAL_OPS:
            setattr(module, name, clock.timed(getattr(module, name)))
    with session(load_recipe("demo"), list(sources), lake, Compute()) as held:
        curate_steps(held, clock.do)
    Path(out).write_text(json.dumps({"steps": clock.steps, "ops": clock.ops}))


if __name__ == "__main__":
    main(*sys.argv[1:])
