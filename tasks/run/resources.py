"""Work out what the workers of a stage take of the machines that there are."""

import os
from dataclasses import dataclass
from math import floor
from pathlib import Path

from tasks.run.placement import ModelPool, Placement

# Items that a model's process has in flight: one is written, one is on the device, one is read.
LANES = 3
# Threads that prepare batches for one model: more than these did not feed it faster (infra/bench/README.md).
MOST_FEEDERS = 15
# A pool on a cluster may grow to this where the user names no number: Ray starts as many as there is room for.
UNBOUNDED = 10_000


@dataclass(frozen=True)
class Node:
    """What a machine has in all."""

    cpus: float
    gpus: float


@dataclass(frozen=True)
class Resources:
    """What each worker of a stage takes, how many there are at ``least`` and at ``most``, how many items each has in
    flight (``lanes``), and the threads that prepare batches for its model (0: it does so itself)."""

    cpus: float
    gpus: float
    least: int
    most: int
    lanes: int = 1
    feeders: int = 0

    @property
    def share(self) -> float:
        """The part of a GPU's memory that each may take; 0 without a GPU."""
        return min(1.0, self.gpus)


def resources(placement: Placement, model: str, nodes: list[Node]) -> Resources:
    """Return what a stage takes whose job runs ``model``, by the recipe's name of it, or none ('').

    A model has one GPU a replica where there are GPUs, unless the run says otherwise. Without one it is as any job on
    CPUs: a process a CPU, each with a thread, does more there than one with many.
    """
    pool = placement.pool_of(model) if model else ModelPool()
    gpus = _gpus(pool, model, nodes)
    if not gpus and not pool.feeders:
        room = sum(floor(node.cpus / placement.cpus_per_worker) for node in nodes)
        most = pool.replicas[1] or placement.workers or max(1, room)
        return Resources(placement.cpus_per_worker, 0.0, max(1, pool.replicas[0]), most)
    feeders = _feeders(pool, gpus, nodes)
    room = sum(floor(min(node.gpus / gpus if gpus else node.cpus, node.cpus)) for node in nodes)
    most = pool.replicas[1] or (UNBOUNDED if placement.is_cluster else max(1, room))
    return Resources(1.0 + feeders, gpus, max(1, pool.replicas[0]), most, LANES if feeders else 1, feeders)


def this_machine() -> Node:
    """Return this machine's CPUs and GPUs, as far as this process may use them."""
    return Node(len(os.sched_getaffinity(0)), len(devices()))


def devices() -> tuple[str, ...]:
    """List this machine's GPUs as CUDA_VISIBLE_DEVICES names them, without CUDA, which a fork would not survive."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return tuple(name for name in visible.split(",") if name.strip())
    return tuple(str(n) for n, _ in enumerate(Path("/dev").glob("nvidia[0-9]*")))


def _gpus(pool: ModelPool, model: str, nodes: list[Node]) -> float:
    if not model:
        return 0.0
    if pool.gpus is not None:
        return pool.gpus
    return 1.0 if any(node.gpus for node in nodes) else 0.0


def _feeders(pool: ModelPool, gpus: float, nodes: list[Node]) -> int:
    """Threads a replica: as set, else its part of the CPUs of the machine that has the fewest for a GPU, less a fifth,
    which other stages and Ray need."""
    if pool.feeders is not None:
        return pool.feeders
    parts = [0.8 * node.cpus * gpus / node.gpus for node in nodes if node.gpus]
    return max(0, min(MOST_FEEDERS, floor(min(parts, default=1.0)) - 1))
