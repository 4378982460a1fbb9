"""Run work items on a pool of forked processes of this machine."""

import functools
import multiprocessing
import os
import pickle
import threading
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import forkserver
from typing import Any

from catalog.pending.item import WorkItem
from catalog.write.commit import Manifest
from tasks.run.partition import Job, Output, Worker
from tasks.run.poison import quarantine_killers

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
# What every worker needs of other people's code. None of it starts a thread or touches a GPU when it is imported.
PRELOADED = ["duckdb", "numpy", "pandas", "pyarrow.parquet", "simplejpeg", "torch"]


def warm_up() -> None:
    """Start the fork server, which imports PRELOADED while the caller goes on.

    Torch takes 1.6 CPU seconds and 0.5 GB: a worker that is forked from a process that has it shares both. Workers are
    as many as the CPUs, so each keeps to one thread: two workers of two threads on two busy CPUs wait for each other at
    every step of a small model (seen: captions 30 times slower). Libraries read these variables when they are loaded.
    """
    multiprocessing.get_context("forkserver").set_forkserver_preload(PRELOADED)
    before = dict(os.environ)
    os.environ.update(ONE_THREAD)
    try:
        forkserver.ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(before)


@functools.cache
def _pool(n_workers: int) -> ProcessPoolExecutor:
    """Return the pool of this size, kept for the process's life: workers that loaded a model serve later stages."""
    return _new_pool(n_workers)


def _new_pool(n_workers: int) -> ProcessPoolExecutor:
    warm_up()
    return ProcessPoolExecutor(
        n_workers, multiprocessing.get_context("forkserver"), _set_up_worker, (dict(os.environ),)
    )


def _set_up_worker(environment: dict[str, str]) -> None:
    """Initialise a worker: the caller's environment as it is now (S3 keys), which the fork server may have older.

    A worker whose caller was killed ends itself; the fork server then ends too.
    """
    os.environ.clear()
    os.environ.update(environment | ONE_THREAD)
    threading.Thread(target=_exit_with, args=(multiprocessing.parent_process(),), daemon=True).start()


def _exit_with(caller: Any) -> None:
    """End this process, without cleaning up, when ``caller`` has ended."""
    caller.join()
    os._exit(1)


@functools.lru_cache(maxsize=4)
def _unpickled(payload: bytes) -> Worker:
    return pickle.loads(payload)


def _work(payload: bytes, item: WorkItem) -> list[Manifest]:
    return _unpickled(payload)(item)


def run_in_pool(items: Sequence[WorkItem], job: Job, output: Output, n_workers: int) -> Iterator[list[Manifest]]:
    """Run ``job`` on every item and yield its manifests; after a worker's death run the items in flight apart."""
    payload = pickle.dumps(Worker(job, output))
    waiting = list(reversed(items))
    while waiting:
        suspects = yield from _until_a_worker_dies(waiting, payload, n_workers)
        for item in suspects:
            yield _run_apart(item, payload, job, output)


def _until_a_worker_dies(
    waiting: list[WorkItem], payload: bytes, n_workers: int
) -> Generator[list[Manifest], None, list[WorkItem]]:
    """Run items off the end of ``waiting``, yield results; return those in flight when a worker died, else []."""
    pool = _pool(n_workers)
    running: dict[Future, WorkItem] = {}
    try:
        while waiting or running:
            while waiting and len(running) < 2 * n_workers:
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


def _run_apart(item: WorkItem, payload: bytes, job: Job, output: Output) -> list[Manifest]:
    """Run an item that may kill its worker in a separate process, a new one after each death."""
    pools: list[ProcessPoolExecutor] = []

    def attempt(part: WorkItem) -> list[Manifest] | None:
        if not pools:
            pools.append(_new_pool(1))
        try:
            return pools[0].submit(_work, payload, part).result()
        except BrokenProcessPool:
            pools.pop().shutdown()
            return None

    try:
        return quarantine_killers(item, job, output, attempt)
    finally:
        for pool in pools:
            pool.shutdown()
