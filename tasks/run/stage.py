"""Run a job over work items, on a local process pool or on Ray (the only file that imports it).

A stage is a list of work items (``catalog.pending.item``) and a *job*: a picklable callable ``item -> list[Part]`` that
reads the item's rows, works, and returns the rows of each table it fills. The runner writes each part as one Parquet
file under the run's id and streams back one manifest a file, in the order in which items finish.

Two placements give equal files: a pool of forked processes for small work with no cluster address (Ray's own start
costs some 10 s), else Ray Data, whose rows are the work items themselves: its Parquet datasource reads a small dataset
as one task, paths as rows keep every worker busy. One worker holds one shard at a time, so memory is bounded by the
shard and its model, whatever the length of the list.
"""

import atexit
import logging
import os
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from catalog.pending.item import WorkItem
from catalog.terms.error import PairmillError
from catalog.write.commit import Manifest
from tasks.run import pool
from tasks.run.partition import Job, Output, Part, Worker, write_parts
from tasks.run.poison import Lost, quarantine_killers
from tasks.run.pool import ONE_THREAD, run_in_pool

__all__ = ["Job", "Output", "Part", "Placement", "run", "warm_up", "write_parts"]


@dataclass(frozen=True)
class Placement:
    """Workers, CPUs and GPUs of a stage. Never part of an identity: any placement gives the same rows.

    ``workers`` 0 means one per CPU of this machine; on a cluster as many as it has CPUs (or GPUs, where workers take
    some) for when a stage starts, so name a number where it grows by itself. ``ray_address`` '' keeps to this machine,
    'local' starts Ray here, anything else is a cluster. Up to ``small_rows`` pending rows go to the pool.
    """

    workers: int = 0
    ray_address: str = ""
    gpus_per_worker: float = 0.0
    cpus_per_worker: float = 1.0
    small_rows: int = 50_000

    @property
    def n_workers(self) -> int:
        return self.workers or max(1, len(os.sched_getaffinity(0)))


def warm_up(placement: Placement) -> None:
    """Start the pool's fork server, so that imports run while the caller opens its lake. Does nothing for Ray."""
    if not placement.ray_address:
        pool.warm_up()


def run(items: Sequence[WorkItem], job: Job, output: Output, placement: Placement) -> Iterator[list[Manifest]]:
    """Run ``job`` on every item and yield each item's manifests (one a file) in the order in which items finish.

    The files of one item belong to one transaction: half a shard must never count. A job turns bad rows into quarantine
    rows itself; a row that kills its worker process (native crash, out of memory) is found and quarantined as
    ``poison``. Raises what the job raises; what was yielded before stays committed. Raises PairmillError when workers
    die of more than single rows.
    """
    if not items:
        return iter(())
    n_rows = sum(len(item.keys) for item in items)
    if not placement.ray_address and n_rows <= placement.small_rows:
        return run_in_pool(items, job, output, placement.n_workers)
    return _run_on_ray(items, job, output, placement)


def _run_on_ray(items: Sequence[WorkItem], job: Job, output: Output, placement: Placement) -> Iterator[list[Manifest]]:
    """Run the items on Ray actors; after an actor's death run those in flight apart, then go on with the others.

    Ray itself must not restart actors: it would try a killing item for ever.
    """
    import ray
    from ray.exceptions import RayActorError, RayError

    _start_ray(placement)
    _check_room(placement)
    payload = pickle.dumps(Worker(job, output))
    waiting = dict(enumerate(items))
    while waiting:
        in_flight = ray.remote(num_cpus=0)(_InFlight).remote()
        try:
            for number, manifests in _stream(waiting, payload, in_flight, placement):
                del waiting[number]
                yield manifests
        except RayError as error:
            suspects = [n for n in ray.get(in_flight.numbers.remote()) if n in waiting]
            if not suspects or not isinstance(error, RayActorError):
                raise
            for number in suspects:
                yield _run_apart(waiting.pop(number), payload, job, output, placement)


def _stream(
    waiting: dict[int, WorkItem], payload: bytes, in_flight: Any, placement: Placement
) -> Iterator[tuple[int, list[Manifest]]]:
    """Map the waiting items over a pool of Ray actors; yield (item number, its manifests)."""
    import ray

    rows = [{"number": number, "item": pickle.dumps(item)} for number, item in waiting.items()]
    dataset = ray.data.from_items(rows, override_num_blocks=len(rows)).map_batches(
        _RayWorker,
        fn_constructor_args=(payload, in_flight),
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=min(len(rows), _actors(placement))),
        num_cpus=_cpu_share(placement),
        num_gpus=placement.gpus_per_worker,
        max_restarts=0,
        max_task_retries=0,
    )
    for row in dataset.iter_rows():
        yield row["number"], pickle.loads(row["manifests"])


class _InFlight:
    """Record, in a Ray actor of its own, the numbers of the items being worked on; a dead worker cannot report its."""

    def __init__(self) -> None:
        self._numbers: set[int] = set()

    def start(self, number: int) -> None:
        self._numbers.add(number)

    def finish(self, number: int) -> None:
        self._numbers.discard(number)

    def numbers(self) -> list[int]:
        return sorted(self._numbers)


class _RayWorker:
    """Ray actor that unpickles its Worker once and runs items with it."""

    def __init__(self, payload: bytes, in_flight: Any = None) -> None:
        self.worker: Worker = pickle.loads(payload)
        self.in_flight = in_flight

    def __call__(self, batch: dict) -> dict:
        import ray

        manifests = []
        for number, item in zip(batch["number"], batch["item"], strict=True):
            ray.get(self.in_flight.start.remote(int(number)))
            manifests.append(pickle.dumps(self.worker(pickle.loads(item))))
            self.in_flight.finish.remote(int(number))
        return {"number": batch["number"], "manifests": manifests}

    def work(self, item: WorkItem) -> list[Manifest]:
        return self.worker(item)


def _run_apart(item: WorkItem, payload: bytes, job: Job, output: Output, placement: Placement) -> list[Manifest]:
    """Run an item that may kill its worker in a separate actor, a new one after each death."""
    import ray
    from ray.exceptions import RayActorError

    actor = ray.remote(num_cpus=_cpu_share(placement), num_gpus=placement.gpus_per_worker)(_RayWorker)
    alive: list[Any] = []

    def attempt(part: WorkItem) -> list[Manifest] | Lost:
        if not alive:
            alive.append(actor.remote(payload))
        try:
            return ray.get(alive[0].work.remote(part))
        except RayActorError:
            alive.clear()
            return Lost("poison", "a worker process that ran it alone died")

    return quarantine_killers(item, job, output, attempt)


def _actors(placement: Placement) -> int:
    """Number of actors: as set, else as many as this machine's CPUs, or the cluster's CPUs or GPUs, have room for."""
    if placement.workers or placement.ray_address in ("", "local"):
        return placement.n_workers
    import ray

    has = ray.cluster_resources()
    if placement.gpus_per_worker:
        return max(1, int(has.get("GPU", 0.0) / placement.gpus_per_worker))
    return max(1, int(has.get("CPU", 1.0) / placement.cpus_per_worker))


def _cpu_share(placement: Placement) -> float:
    """CPUs an actor, 80 % of all at most: else the tasks that feed actors starve (four of 0.4 on two CPUs hung)."""
    import ray

    cpus = ray.cluster_resources().get("CPU", 1.0)
    return min(placement.cpus_per_worker, 0.8 * cpus / _actors(placement))


def _check_room(placement: Placement) -> None:
    """Raise PairmillError when no machine has what one worker asks for: Ray would wait for it, without a word."""
    import ray

    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if any(node.get("GPU", 0) >= placement.gpus_per_worker for node in nodes):
        return
    have = "; ".join(f"{node.get('CPU', 0):g} CPUs, {node.get('GPU', 0):g} GPUs" for node in nodes)
    raise PairmillError(
        f"a worker asks for {placement.gpus_per_worker:g} GPUs, and no machine has as many ({have}). Lower "
        "--gpus-per-worker or leave it out, or name a cluster with GPUs by --ray; where one starts machines on demand, "
        "start one first."
    )


def _start_ray(placement: Placement) -> None:
    import ray

    if ray.is_initialized():
        return
    is_local = placement.ray_address in ("", "local")
    ray.init(
        # Without an address Ray attaches to whatever runs on this machine, or did: $RAY_ADDRESS, a file of one killed.
        address="local" if is_local else placement.ray_address,
        num_cpus=max(2, placement.n_workers) if is_local else None,
        include_dashboard=False if is_local else None,
        log_to_driver=False,
        logging_level=logging.ERROR,
        runtime_env={"env_vars": ONE_THREAD},
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    atexit.register(ray.shutdown)
