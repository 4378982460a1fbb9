"""Compute the number of workers of a stage, and the CPUs, GPUs and feeder threads of each.

This machine's GPUs are found without initialising CUDA, which breaks forks.
"""

import os
import runpy
import shutil
import subprocess
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from itertools import takewhile
from math import floor
from pathlib import Path
from typing import Any

from pairmill.tasks.run.place.placement import ModelPool, Placement

# Items in flight per model process: one being read, one on the device, one being written.
LANES = 3
# The most threads that prepare batches for one model: more did not raise its throughput (infra/bench/README.md).
MOST_FEEDERS = 15
# Threads that encode images for a server: a JPEG of 448 pixels takes some 2 ms of a CPU.
CLIENT_FEEDERS = 4
# The most workers on a cluster when the user sets no number: Ray starts as many as fit.
UNBOUNDED = 10_000
# Paths at which a kernel shows GPUs: NVIDIA's device files, the device of Windows' driver (WSL2), AMD's nodes.
NVIDIA, WSL, AMD = Path("/dev"), Path("/dev/dxg"), Path("/sys/class/kfd/kfd/topology/nodes")
WSL_TOOLS = "/usr/lib/wsl/lib"


@dataclass(frozen=True)
class Node:
    """The total CPUs and GPUs of one machine; on Ray also the kinds of its GPUs ('H100') and its id."""

    cpus: float
    gpus: float
    kinds: frozenset[str] = frozenset()
    id: str = ""


@dataclass(frozen=True)
class Resources:
    """Resources of one worker of a stage, and the number of workers."""

    cpus: float  # CPUs of one worker
    gpus: float  # GPUs of one worker, fractions included
    least: int  # the fewest workers
    most: int  # the most workers
    lanes: int = 1  # items in flight in each worker
    feeders: int = 0  # threads that prepare batches for the worker's model; 0: the worker prepares them itself
    most_feeders: int = 0  # feeders on a machine with more CPUs for each of its GPUs, see `feeders_on`
    kind: str = ""  # the kind of GPU, '' for any

    @property
    def share(self) -> float:
        """Fraction of a GPU's memory that each worker may use; 0 without a GPU."""
        return min(1.0, self.gpus)


def resources(placement: Placement, model: str, nodes: list[Node]) -> Resources:
    """Compute the resources of a stage whose job runs ``model``, the recipe's name of a model, '' for none.

    A model gets one GPU per replica where there are GPUs, unless the run sets another number. Without a GPU it runs
    like any CPU job: one process per CPU with one thread each has a higher throughput than one process with many
    threads.
    """
    pool = placement.pool_of(model) if model else ModelPool()
    if pool.accelerator:
        nodes = _of_kind(nodes, pool.accelerator)
    gpus = _gpus(pool, model, nodes)
    if not gpus and not pool.feeders:
        fits = sum(floor(node.cpus) for node in nodes)
        most = pool.replicas[1] or placement.workers or (UNBOUNDED if placement.is_cluster else max(1, fits))
        return Resources(1.0, 0.0, max(1, pool.replicas[0]), most)
    feeders, cpus = _feeders_and_cpus(pool, gpus, nodes)
    fits = max(1, sum(_on_cards(node, gpus) if gpus else floor(node.cpus / cpus) for node in nodes))
    most = pool.replicas[1] or UNBOUNDED
    if not placement.is_cluster:  # no machine can join later
        most = min(most, fits)
    least, lanes = max(1, min(pool.replicas[0], most)), LANES if feeders else 1
    most_feeders = MOST_FEEDERS if pool.feeders is None else feeders
    return Resources(cpus, gpus, least, most, lanes, feeders, most_feeders, pool.accelerator)


def feeders_on(asked: Resources, node: Node) -> int:
    """Return the number of feeders of a worker on ``node``: by the node's CPUs and GPUs, unless the run sets a number.

    A worker's CPUs are the same on all machines, so that it fits everywhere; only its number of threads differs.
    Otherwise 8 GPUs beside 192 CPUs would have the 5 feeders of another machine that has 1 GPU and 8 CPUs.
    """
    if asked.feeders == asked.most_feeders or not asked.gpus:
        return asked.feeders
    return max(asked.feeders, _feeders(node.cpus / max(1, _on_cards(node, asked.gpus))))


def pool_at_server(pool: ModelPool, nodes: list[Node]) -> ModelPool:
    """Return the pool for a model behind a server: no GPU, one client process, a few feeders that encode images.

    The run's own replicas and feeders take precedence.
    """
    spare = max((int(node.cpus) - 1 for node in nodes), default=1)
    feeders = pool.feeders or max(1, min(CLIENT_FEEDERS, spare))
    return replace(pool, gpus=0.0, replicas=pool.replicas if any(pool.replicas) else (1, 1), feeders=feeders)


def count_in_flight(asked: Resources, nodes: list[Node]) -> int:
    """Return the number of items that all workers together have in flight, as far as the machines have room now."""
    return asked.lanes * max(1, min(asked.most, room(asked, nodes)))


def room(asked: Resources, nodes: list[Node]) -> int:
    """Return the number of workers with the resources ``asked`` that fit on the machines."""
    return sum(
        min(floor(node.cpus / asked.cpus), _on_cards(node, asked.gpus) if asked.gpus else asked.most)
        for node in _of_kind(nodes, asked.kind)
    )


def refusal(asked: Resources, nodes: list[Node]) -> str:
    """Return the error message that no machine has the resources of one worker, with the remedy; '' if one has."""
    if any(node.gpus >= asked.gpus and node.cpus >= asked.cpus for node in _of_kind(nodes, asked.kind)):
        return ""
    have = "; ".join(map(_describe, sorted(nodes, key=lambda node: (node.gpus, node.cpus))))
    kind, or_kind = (f" of kind {asked.kind}", ", or another accelerator") if asked.kind else ("", "")
    return (
        f"a worker asks for {asked.cpus:g} CPUs and {asked.gpus:g} GPUs{kind}, and no machine has as many ({have}). "
        f"Give its model fewer GPUs or feeders{or_kind} (--model, or compute.models in Prefect), or name a cluster "
        "that has them by --ray; where one starts machines on demand, it launches none for this."
    )


def this_machine() -> Node:
    """Return the CPUs and GPUs of this machine that this process may use."""
    return Node(len(os.sched_getaffinity(0)), len(devices()))


def _gpus(pool: ModelPool, model: str, nodes: list[Node]) -> float:
    """Return the GPUs of one replica: the run's setting, else 1 where a machine has GPUs."""
    if not model:
        return 0.0
    if pool.gpus is not None:
        return pool.gpus
    return 1.0 if pool.accelerator or any(node.gpus for node in nodes) else 0.0


def _of_kind(nodes: list[Node], kind: str) -> list[Node]:
    """Return the machines with GPUs of this kind, all machines for ''."""
    return [node for node in nodes if kind in node.kinds] if kind else nodes


def _describe(node: Node) -> str:
    """Describe a machine: CPUs, GPUs and their kinds."""
    kinds = f" ({', '.join(sorted(node.kinds))})" if node.kinds else ""
    return f"{node.cpus:g} CPUs, {node.gpus:g} GPUs{kinds}"


def _on_cards(node: Node, gpus: float) -> int:
    """Count the replicas that fit on the machine's GPUs; a fraction of a GPU lies on one GPU."""
    return int(node.gpus) * floor(1 / gpus + 1e-9) if gpus < 1 else floor(node.gpus / gpus)


def _feeders_and_cpus(pool: ModelPool, gpus: float, nodes: list[Node]) -> tuple[int, float]:
    """Return (feeders, CPUs) of one replica; the CPUs are one for itself and one for each feeder.

    As set by the run, else a replica's share of the CPUs of the machine with the fewest CPUs per GPU, minus a fifth for
    other stages and Ray. A single feeder that shares its replica's CPU still prepares one batch while the device runs
    another.
    """
    if pool.feeders is not None:
        return pool.feeders, 1.0 + pool.feeders
    shares = [node.cpus / n for node in nodes if (n := _on_cards(node, gpus))]
    share = min(shares, default=1.0)
    feeders = _feeders(share)
    # Ray accepts fractions of a CPU in steps of 0.0001.
    return feeders, min(1.0 + feeders, float(floor(share)) if share >= 1 else floor(share * 10_000) / 10_000)


def _feeders(share: float) -> int:
    """Return the number of feeders of a replica that has ``share`` CPUs of its machine."""
    return max(1, min(MOST_FEEDERS, floor(0.8 * share) - 1))


def devices() -> tuple[str, ...]:
    """List the GPUs that this process may use, by their names in CUDA_VISIBLE_DEVICES ('0', '1', …).

    As in CUDA, an invalid name such as -1 ends the list.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        names = (name.strip() for name in visible.split(","))
        return tuple(takewhile(lambda name: name and not name.startswith("-"), names))
    return tuple(str(n) for n in range(_n_cards()))


def devices_by_worker(gpus: float) -> tuple[str, ...]:
    """List the value of CUDA_VISIBLE_DEVICES for each worker, if a worker takes ``gpus`` GPUs.

    '' hides all GPUs from CPU workers, also those that this machine has but `devices` does not find: otherwise every
    CPU worker would load its model onto the first card.
    """
    if not gpus:
        return ("",)
    found, n = devices(), max(1, int(gpus))
    return tuple(",".join(found[start : start + n]) for start in range(0, len(found) - n + 1, n))


def _n_cards() -> int:
    """Count the GPUs that torch's build may use, by the kernel's device files."""
    if found := len(list(NVIDIA.glob("nvidia[0-9]*"))):
        return found
    if WSL.exists():  # also there for other makers' cards
        return _n_listed()
    return _n_compute_nodes() if torch_build().get("hip") else 0


@cache
def _n_listed() -> int:
    """Count the GPUs that nvidia-smi lists; 0 without it."""
    tool = shutil.which("nvidia-smi", path=os.pathsep.join((os.environ.get("PATH", ""), WSL_TOOLS)))
    if tool is None:
        return 0
    try:
        said = subprocess.run([tool, "-L"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return 0
    return sum(line.startswith("GPU ") for line in said.stdout.splitlines())


def _n_compute_nodes() -> int:
    """Count AMD's nodes with compute units; a CPU is a node without any."""
    files = (node / "properties" for node in AMD.glob("[0-9]*"))
    words = (line.split() for file in files if file.is_file() for line in file.read_text().splitlines())
    return sum(word[0] == "simd_count" and word[1] != "0" for word in words if len(word) == 2)


@cache
def torch_build() -> dict[str, Any]:
    """Return the variables of torch's version file, such as ``__version__``, ``cuda`` and ``hip``; {} without torch.

    Importing torch would take 3 s.
    """
    found = find_spec("torch")
    file = Path(found.origin).with_name("version.py") if found and found.origin else None
    return runpy.run_path(str(file)) if file and file.is_file() else {}
