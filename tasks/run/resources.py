"""Work out what the workers of a stage take of the machines that there are."""

import os
from dataclasses import dataclass, replace
from itertools import takewhile
from math import floor
from pathlib import Path

from pairmill.tasks.run.placement import ModelPool, Placement

# Items that a model's process has in flight: one is written, one is on the device, one is read.
LANES = 3
# Threads that prepare batches for one model: more than these did not feed it faster (infra/bench/README.md).
MOST_FEEDERS = 15
# Threads that encode pictures for a server: one of 448 pixels takes a CPU some 2 ms as JPEG.
CLIENT_FEEDERS = 4
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
        most = pool.replicas[1] or placement.workers or (UNBOUNDED if placement.is_cluster else max(1, room))
        return Resources(placement.cpus_per_worker, 0.0, max(1, pool.replicas[0]), most)
    feeders, cpus = _fed(pool, gpus, nodes)
    room = max(1, sum(_on_cards(node, gpus) if gpus else floor(node.cpus / cpus) for node in nodes))
    most = pool.replicas[1] or UNBOUNDED
    if not placement.is_cluster:  # to which no machine will come
        most = min(most, room)
    return Resources(cpus, gpus, max(1, min(pool.replicas[0], most)), most, LANES if feeders else 1, feeders)


def at_a_server(pool: ModelPool, nodes: list[Node]) -> ModelPool:
    """Return the pool of a model that a server runs: no GPU, one process that asks for texts unless the run says
    otherwise, and a few feeders, which encode pictures."""
    room = max((int(node.cpus) - 1 for node in nodes), default=1)
    feeders = pool.feeders or max(1, min(CLIENT_FEEDERS, room))
    return replace(pool, gpus=0.0, replicas=pool.replicas if any(pool.replicas) else (1, 1), feeders=feeders)


def places(asked: Resources, nodes: list[Node]) -> int:
    """Count the items that workers which take so much have in flight, as far as the machines have room now."""
    room = sum(
        min(floor(node.cpus / asked.cpus), _on_cards(node, asked.gpus) if asked.gpus else asked.most) for node in nodes
    )
    return asked.lanes * max(1, min(asked.most, room))


def refusal(asked: Resources, nodes: list[Node]) -> str:
    """Return the line that says that no machine has what one worker asks for, with the remedy; '' where one has."""
    if any(node.gpus >= asked.gpus and node.cpus >= asked.cpus for node in nodes):
        return ""
    have = "; ".join(
        f"{node.cpus:g} CPUs, {node.gpus:g} GPUs" for node in sorted(nodes, key=lambda node: (node.gpus, node.cpus))
    )
    return (
        f"a worker asks for {asked.cpus:g} CPUs and {asked.gpus:g} GPUs, and no machine has as many ({have}). Give "
        "its model fewer GPUs or feeders (--model, or compute.models in Prefect), or name a cluster that has them by "
        "--ray; where one starts machines on demand, it launches none for this."
    )


def this_machine() -> Node:
    """Return this machine's CPUs and GPUs, as far as this process may use them."""
    return Node(len(os.sched_getaffinity(0)), len(devices()))


def devices() -> tuple[str, ...]:
    """List this machine's GPUs as CUDA_VISIBLE_DEVICES names them, without CUDA, which a fork would not survive.

    As CUDA reads it, a name that is none, such as -1, ends the list.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        names = (name.strip() for name in visible.split(","))
        return tuple(takewhile(lambda name: name and not name.startswith("-"), names))
    return tuple(str(n) for n, _ in enumerate(Path("/dev").glob("nvidia[0-9]*")))


def devices_by_worker(gpus: float) -> tuple[str, ...]:
    """List which of this machine's GPUs each worker in turn sees that takes so many; none ('') for work on CPUs."""
    found, n = devices(), max(1, int(gpus))
    if not gpus:
        return ("",) * bool(found)
    return tuple(",".join(found[start : start + n]) for start in range(0, len(found) - n + 1, n))


def _gpus(pool: ModelPool, model: str, nodes: list[Node]) -> float:
    if not model:
        return 0.0
    if pool.gpus is not None:
        return pool.gpus
    return 1.0 if any(node.gpus for node in nodes) else 0.0


def _on_cards(node: Node, gpus: float) -> int:
    """Count the replicas that the machine's GPUs have room for: a part of a card lies on one card."""
    return int(node.gpus) * floor(1 / gpus + 1e-9) if gpus < 1 else floor(node.gpus / gpus)


def _fed(pool: ModelPool, gpus: float, nodes: list[Node]) -> tuple[int, float]:
    """Return a replica's feeders and CPUs (its own and one for each): as set, else its part of the machine that has the
    fewest CPUs for its GPUs, less a fifth, which other stages and Ray need.

    One feeder that shares its replica's CPU still prepares a batch while the device has another.
    """
    if pool.feeders is not None:
        return pool.feeders, 1.0 + pool.feeders
    shares = [node.cpus / n for node in nodes if (n := _on_cards(node, gpus))]
    share = min(shares, default=1.0)
    feeders = max(1, min(MOST_FEEDERS, floor(0.8 * share) - 1))
    # Ray takes fractions of a CPU in steps of 0.0001.
    return feeders, min(1.0 + feeders, float(floor(share)) if share >= 1 else floor(share * 10_000) / 10_000)
