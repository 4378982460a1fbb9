"""The one runner of all per-item stages, and the only file that knows Ray.

A stage is a list of :class:`~catalog.worklist.WorkItem` and a *job*: a picklable callable ``item -> list[Part]`` that
reads the item's rows, works, and returns the rows of each table it fills. The runner writes each part as one Parquet
file under the run's id and streams back one manifest a file, in the order in which items finish.

Two placements give equal files: a pool of spawned processes for small work with no cluster address (Ray's own start
costs some 10 s), else Ray Data, whose rows are the work items themselves: its Parquet datasource reads a small dataset
as one task, paths as rows keep every worker busy. One worker holds one shard at a time, so memory is bounded by the
shard and its model, whatever the length of the list.
"""

import atexit
import functools
import logging
import multiprocessing
import os
import pickle
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Protocol

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq

from catalog.arrow import arrow_schema
from catalog.commit import Manifest
from catalog.error import PairmillError
from catalog.worklist import WorkItem
from ops.fault import Fault
from ops.identity import text_id
from tasks.poison import isolate, only
from tasks.rows import quarantine


@dataclass(frozen=True)
class Part:
    """Rows of one table; ``shard``, ``scorer`` and ``commit`` are added by the runner."""

    table: str
    rows: pa.Table
    scorer: str = ""


class Job(Protocol):
    """What is done with one work item; lives as long as a worker, loads its models on first use."""

    def __call__(self, item: WorkItem) -> list[Part]: ...


@dataclass(frozen=True)
class Placement:
    """Where work runs. Never part of an identity: any placement gives the same rows.

    ``workers`` 0 means one a CPU (or one a GPU for model stages on a cluster); ``ray_address`` '' keeps to this
    machine, 'local' starts Ray here, anything else is a cluster. Up to ``small_rows`` pending rows go to the pool.
    """

    workers: int = 0
    ray_address: str = ""
    gpus_per_worker: float = 0.0
    cpus_per_worker: float = 1.0
    small_rows: int = 50_000

    @property
    def n_workers(self) -> int:
        return self.workers or max(1, len(os.sched_getaffinity(0)))


@dataclass(frozen=True)
class Output:
    """Where a stage's files go: ``<data_path>main/<table>/<run_id>/<partition_id>.parquet``."""

    data_path: str
    run_id: str
    commit: int


def run(items: Sequence[WorkItem], job: Job, output: Output, placement: Placement) -> Iterator[list[Manifest]]:
    """Work through ``items`` and yield each one's manifests (one a file) as it finishes.

    The files of one item belong to one transaction: half a shard must never count. A bad item is the job's business
    (a quarantine row); an exception in a job fails the stage, what is already yielded stays committed. In the pool, a
    row that kills its worker process (a native crash, out of memory) is found and quarantined as ``poison``.
    """
    if not items:
        return iter(())
    n_rows = sum(len(item.keys) for item in items)
    if not placement.ray_address and n_rows <= placement.small_rows:
        return _run_in_pool(items, job, output, placement)
    return _run_on_ray(items, job, output, placement)


def write_parts(parts: Iterable[Part], item: WorkItem, output: Output, seconds: float) -> list[Manifest]:
    """Write each part as one Parquet file; a part without rows is a manifest without a file."""
    return [_write(part, item, output, seconds) for part in parts]


def _write(part: Part, item: WorkItem, output: Output, seconds: float) -> Manifest:
    partition_id = text_id(part.table, item.shard, part.scorer, item.digest)
    path, size = "", 0
    if part.rows.num_rows:
        path = f"{output.data_path}main/{part.table}/{output.run_id}/{partition_id}.parquet"
        size = _write_file(path, _with_columns(part, item.shard, output))
    return Manifest(
        part.table, partition_id, item.shard, part.scorer, part.rows.num_rows, size, round(seconds, 4), path,
        output.commit, output.run_id,
    )  # fmt: skip


def _write_file(path: str, rows: pa.Table) -> int:
    filesystem, local = fsspec.core.url_to_fs(path)
    filesystem.makedirs(os.path.dirname(local), exist_ok=True)
    with filesystem.open(local, "wb") as file:
        pq.write_table(rows, file, compression="zstd", row_group_size=_row_group_rows(rows))
        return file.tell()


def _with_columns(part: Part, shard: str, output: Output) -> pa.Table:
    schema = arrow_schema(part.table)
    constants = {"shard": shard, "scorer": part.scorer, "commit": output.commit, "run_id": output.run_id}
    rows = part.rows
    for name, value in constants.items():
        if name in schema.names and name not in rows.column_names:
            rows = rows.append_column(name, pa.repeat(pa.scalar(value, schema.field(name).type), rows.num_rows))
    return rows.select(schema.names).cast(schema)


def _row_group_rows(rows: pa.Table) -> int:
    """Rows a row group so that none holds over 64 MB, the most that a reader has to hold at once."""
    return max(1, min(rows.num_rows, 122_880, int(rows.num_rows * 64e6 / max(rows.nbytes, 1))))


@dataclass(frozen=True)
class _Worker:
    job: Job
    output: Output

    def __call__(self, item: WorkItem) -> list[Manifest]:
        started = time.perf_counter()
        parts = self.job(item)
        return write_parts(parts, item, self.output, time.perf_counter() - started)


# --- a pool of processes -------------------------------------------------------------------------------------------


ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


@functools.cache
def _pool(n_workers: int) -> ProcessPoolExecutor:
    """Kept for the life of the process: a worker that has imported torch (3 s) serves every later stage.

    Workers are as many as the CPUs, so each keeps to one thread: two workers of two threads on two busy CPUs wait for
    each other at every step of a small model (seen: captions 30 times slower). Libraries read these variables when
    they are loaded, which is before an initializer runs, so the workers inherit them.
    """
    return _new_pool(n_workers)


def _new_pool(n_workers: int) -> ProcessPoolExecutor:
    pool = ProcessPoolExecutor(n_workers, multiprocessing.get_context("spawn"), _end_with_parent, (os.getpid(),))
    before = dict(os.environ)
    os.environ.update(ONE_THREAD)
    try:
        for _ in range(n_workers):
            pool.submit(os.getpid)  # each starts one process
    finally:
        os.environ.clear()
        os.environ.update(before)
    return pool


def _end_with_parent(parent: int) -> None:
    """A worker whose parent was killed ends itself within a second."""
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


@functools.lru_cache(maxsize=4)
def _unpickled(payload: bytes) -> _Worker:
    return pickle.loads(payload)


def _work(payload: bytes, item: WorkItem) -> list[Manifest]:
    return _unpickled(payload)(item)


def _run_in_pool(items: Sequence[WorkItem], job: Job, output: Output, placement: Placement) -> Iterator[list[Manifest]]:
    payload = pickle.dumps(_Worker(job, output))
    waiting = list(reversed(items))
    while waiting:
        suspects = yield from _until_a_worker_dies(waiting, payload, placement)
        for item in suspects:
            yield _alone(item, payload, job, output)


def _until_a_worker_dies(
    waiting: list[WorkItem], payload: bytes, placement: Placement
) -> Generator[list[Manifest], None, list[WorkItem]]:
    """Take from ``waiting`` and yield results; the items in work when a worker died, one of which killed it."""
    pool = _pool(placement.n_workers)
    running: dict[Future, WorkItem] = {}
    try:
        while waiting or running:
            while waiting and len(running) < 2 * placement.n_workers:
                running[pool.submit(_work, payload, waiting[-1])] = waiting[-1]
                waiting.pop()
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                manifests = future.result()
                del running[future]
                yield manifests
    except BrokenProcessPool:
        _pool.cache_clear()
        return list(running.values())
    finally:
        for future in running:
            future.cancel()
    return []


def _alone(item: WorkItem, payload: bytes, job: Job, output: Output) -> list[Manifest]:
    """The manifests of an item that may kill its worker: its good rows, and a quarantine row for each killer.

    A job may say by ``poisoned(item) -> list[Part]`` what else to write for the killers, so that they are not tried
    again.
    """
    pools: list[ProcessPoolExecutor] = []

    def attempt(part: WorkItem) -> list[Manifest] | None:
        if not pools:
            pools.append(_new_pool(1))
        try:
            return pools[0].submit(_work, payload, part).result()
        except BrokenProcessPool:
            pools.pop().shutdown()
            return None

    name = type(job).__name__
    try:
        found = isolate(item, attempt)
    except PairmillError as error:
        raise PairmillError(
            f"a worker process died while it ran {name} (killed, or out of memory): {error}; what was finished is "
            "committed. Run the same command again; if it dies again, lower compute.workers."
        ) from None
    finally:
        for pool in pools:
            pool.shutdown()
    manifests = [manifest for part in found.results for manifest in part]
    if not found.killers:
        return manifests
    # An input's key is its address, size and etag.
    names = [key.split("\x1e")[0] for key in found.killers]
    faults = [Fault(key, "poison", f"a worker process that ran {name} on it alone died") for key in names]
    step = getattr(job, "stage", name)
    parts = [Part("quarantine", quarantine(names, [""] * len(names), step, faults))]
    killers = only(item, found.killers)
    parts += getattr(job, "poisoned", lambda _: [])(killers)
    return manifests + write_parts(parts, killers, output, 0.0)


# --- Ray Data ------------------------------------------------------------------------------------------------------


def _run_on_ray(items: Sequence[WorkItem], job: Job, output: Output, placement: Placement) -> Iterator[list[Manifest]]:
    import ray

    _start_ray(placement)
    rows = [{"item": pickle.dumps(item)} for item in items]
    n_workers = min(len(items), placement.n_workers)
    dataset = ray.data.from_items(rows, override_num_blocks=len(rows)).map_batches(
        _RayWorker,
        fn_constructor_args=(pickle.dumps(_Worker(job, output)),),
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=n_workers),
        num_cpus=_cpu_share(placement),
        num_gpus=placement.gpus_per_worker,
    )
    for row in dataset.iter_rows():
        yield pickle.loads(row["manifests"])


class _RayWorker:
    def __init__(self, payload: bytes) -> None:
        self.worker: _Worker = pickle.loads(payload)

    def __call__(self, batch: dict) -> dict:
        manifests = [self.worker(pickle.loads(item)) for item in batch["item"]]
        return {"manifests": [pickle.dumps(each) for each in manifests]}


def _cpu_share(placement: Placement) -> float:
    """Actors that took every CPU would starve the tasks that feed them (seen: four of 0.4 on two CPUs hang)."""
    import ray

    cpus = ray.cluster_resources().get("CPU", 1.0)
    return min(placement.cpus_per_worker, 0.8 * cpus / max(1, placement.n_workers))


def _start_ray(placement: Placement) -> None:
    import ray

    if ray.is_initialized():
        return
    address = None if placement.ray_address in ("", "local") else placement.ray_address
    ray.init(
        address=address,
        num_cpus=None if address else max(2, placement.n_workers),
        include_dashboard=False if not address else None,
        log_to_driver=False,
        logging_level=logging.ERROR,
        runtime_env={"env_vars": ONE_THREAD},
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    atexit.register(ray.shutdown)
