"""Run work items on a pool of forked processes of this machine.

Not concurrent.futures: its pool does not know which process holds which item, dies as a whole with one of them, and
cannot end one that is stuck.
"""

import functools
import multiprocessing
import os
import pickle
import queue
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import forkserver
from typing import TypeVar

from catalog.pending.item import WorkItem
from catalog.write.commit import Manifest
from tasks.run.partition import Output
from tasks.run.poison import Lost, quarantine_killers
from tasks.run.process import Process
from tasks.run.remains import sweep
from tasks.run.worker import ONE_THREAD, JobWorker

# What every worker needs of other people's code. None of it starts a thread or touches a GPU when it is imported.
PRELOADED = ["duckdb", "numpy", "pandas", "pyarrow.parquet", "simplejpeg", "torch"]

Argument = TypeVar("Argument")
Piece = TypeVar("Piece")


@dataclass(frozen=True)
class Shape:
    """How many processes a pool has, of which each sees the devices named by its place ('' none: a CPU's work), and how
    many items each has in flight."""

    processes: int
    devices: tuple[str, ...] = ()
    lanes: int = 1


def warm_up() -> None:
    """Start the fork server, which imports PRELOADED while the caller goes on.

    Torch takes 1.6 CPU seconds and 0.5 GB: a worker that is forked from a process that has it shares both. Workers are
    as many as the CPUs, so each keeps to one thread: two workers of two threads on two busy CPUs wait for each other at
    every step of a small model (seen: captions 30 times slower). Libraries read these variables when they are loaded.
    """
    sweep()
    multiprocessing.get_context("forkserver").set_forkserver_preload(PRELOADED)
    before = dict(os.environ)
    os.environ.update(ONE_THREAD)
    try:
        forkserver.ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(before)


def run_in_pool(items: Sequence[WorkItem], worker: JobWorker, output: Output, shape: Shape) -> Iterator[list[Manifest]]:
    """Run the job of ``worker`` on every item and yield its manifests.

    An item whose worker dies, or is ended because its time is over, is bisected by the process that takes the dead
    one's place; the others go on.
    """
    work = _Work(worker, output, pickle.dumps(worker))
    waiting, running = list(reversed(items)), 0
    pool = _pool(shape)
    try:
        while waiting or running:
            while waiting and running < 2 * shape.processes * shape.lanes:
                pool.waiting.put((work, waiting.pop()))
                running += 1
            outcome = work.done.get()
            running -= 1
            if isinstance(outcome, BaseException):
                raise outcome
            yield outcome
    finally:
        work.is_given_up.set()


def run_item(process: Process, worker: JobWorker, payload: bytes, item: WorkItem, output: Output) -> list[Manifest]:
    """Run one item in a process; what kills it there is found and quarantined. Raises what the job raises.

    ``payload`` is ``worker``, pickled: the same bytes for each item, which are then sent once.
    """
    found = process.run(payload, item, output)
    if not isinstance(found, Lost):
        return found
    return quarantine_killers(
        item, worker.job, output, lambda part, rows: process.run(payload, part, output, rows), found
    )


def stream_apart(function: Callable[[Argument], Iterator[Piece]], argument: Argument) -> Iterator[Piece]:
    """Yield what ``function`` yields in a process of its own, which is kept for the next call.

    Raises what that raises, and PairmillError when the process dies or is silent for too long.
    """
    return _apart(_reach()).stream(pickle.dumps(function), argument)


def _reach() -> frozenset[tuple[str, str]]:
    """Return the variables by which a place far away is reached: a process keeps what it made of them."""
    named = ((name, value) for name, value in os.environ.items())
    return frozenset(each for each in named if each[0].startswith("AWS_") or each[0].lower().endswith("_proxy"))


@functools.lru_cache(maxsize=1)
def _apart(reach: frozenset[tuple[str, str]]) -> Process:
    return Process()


@functools.cache
def _pool(shape: Shape) -> "_Pool":
    """Return the pool of this shape, kept for the process's life: workers that loaded a model serve later stages."""
    return _Pool(shape)


@dataclass(frozen=True, eq=False)
class _Work:
    """One call of `run_in_pool`: its job, also pickled for the workers, and where outcomes go."""

    worker: JobWorker
    output: Output
    payload: bytes
    done: "queue.SimpleQueue[list[Manifest] | BaseException]" = field(default_factory=queue.SimpleQueue)
    is_given_up: threading.Event = field(default_factory=threading.Event)


class _Pool:
    """Worker processes, each with a thread here for each item that it has in flight, from ``waiting``.

    The threads keep the workers busy while the caller commits. They end with the pool.
    """

    def __init__(self, shape: Shape) -> None:
        warm_up()
        self.waiting: queue.SimpleQueue[tuple[_Work, WorkItem] | None] = queue.SimpleQueue()
        self.processes = [Process(_sees(shape.devices, place)) for place in range(shape.processes)]
        for process in self.processes * shape.lanes:
            threading.Thread(target=_hand_out, args=(self.waiting, process), name="pool", daemon=True).start()
        weakref.finalize(self, _dismiss, self.waiting, shape.processes * shape.lanes)


def _sees(devices: tuple[str, ...], place: int) -> dict[str, str]:
    return {"CUDA_VISIBLE_DEVICES": devices[place % len(devices)]} if devices else {}


def _dismiss(waiting: "queue.SimpleQueue[tuple[_Work, WorkItem] | None]", threads: int) -> None:
    for _ in range(threads):
        waiting.put(None)


def _hand_out(waiting: "queue.SimpleQueue[tuple[_Work, WorkItem] | None]", process: Process) -> None:
    """Give one process the items that wait, until a None does."""
    while (found := waiting.get()) is not None:
        work, item = found
        if not work.is_given_up.is_set():
            work.done.put(_outcome(process, work, item))
    process.close()


def _outcome(process: Process, work: _Work, item: WorkItem) -> list[Manifest] | BaseException:
    try:
        return run_item(process, work.worker, work.payload, item, work.output)
    except BaseException as error:
        return error
