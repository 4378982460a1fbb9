"""A whole curate run of the recipe demo: ``python -m infra.bench.peers.curate_pass bare|pool SOURCE LAKE OUT``.

``pool`` is the run as it is. ``bare`` calls the same jobs on the same items one after another in this process. OUT is
a JSON file: per step wall seconds, and CPU seconds of this process; of ``bare`` also those inside of the ops.
"""

import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from flows.curate import curate_steps
from flows.opening import session
from flows.settings import Compute, load_recipe
from tasks import cluster, duplicates, stage

# Ops that the flow process itself runs, where its tasks look them up.
GLOBAL_OPS = ((cluster.kmeans, "train"), (duplicates, "hamming_edges"), (duplicates, "recut"))


class Clock:
    """CPU seconds of the ops by step; those that ran inside of a step's jobs or as a global op."""

    def __init__(self) -> None:
        self.step = ""
        self.ops: dict[str, float] = defaultdict(float)
        self.steps: dict[str, dict[str, float]] = {}

    def timed(self, work: Callable) -> Callable:
        def call(*args: Any, **options: Any) -> Any:
            started = time.process_time()
            try:
                return work(*args, **options)
            finally:
                self.ops[self.step] += time.process_time() - started

        return call

    def do(self, step: Callable, held: Any) -> Any:
        self.step = step.__name__
        cpu, wall = time.process_time(), time.perf_counter()
        answer = step(held)
        self.steps[self.step] = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
        return answer


def main(how: str, source: str, lake: str, out: str) -> None:
    clock = Clock()
    if how == "bare":
        torch.set_num_threads(1)
        stage.run = lambda items, job, output, placement: (
            stage.write_parts(clock.timed(job)(item), item, output, 0.0) for item in items
        )
        for module, name in GLOBAL_OPS:
            setattr(module, name, clock.timed(getattr(module, name)))
    with session(load_recipe("demo"), [source], lake, Compute()) as held:
        curate_steps(held, clock.do)
    Path(out).write_text(json.dumps({"steps": clock.steps, "ops": clock.ops}))


if __name__ == "__main__":
    main(*sys.argv[1:])
