"""Run work items on a pool of worker processes of this machine.

Not concurrent.futures: its pool does not know which process holds which item, dies as a whole with one of them, and
cannot end one that is stuck.
"""

import functools
import os
import pickle
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.write.commit import Manifest
from pairmill.tasks.run.fork_server import start_fork_server
from pairmill.tasks.run.pace import Pace
from pairmill.tasks.run.partition import Output
from pairmill.tasks.run.poison import LostWorker, quarantine_killers
from pairmill.tasks.run.process import Process
from pairmill.tasks.run.worker import JobWorker

Argument = TypeVar("Argument")
Piece = TypeVar("Piece")


@dataclass(frozen=True)
class PoolShape:
    """How many processes a pool has at most, of which each sees the devices named by its place ('' none: a CPU's work),
    and how many items each has in flight.

    ``least`` processes are used at once, 0 all of them; the others when the work that is left is worth their start.
    ``is_light``: the job needs no model, so the process that lists sources is the first of them.
    """

    processes: int
    devices: tuple[str, ...] = ()
    lanes: int = 1
    least: int = 0
    is_light: bool = False


def run_in_pool(
    items: Sequence[WorkItem], worker: JobWorker, output: Output, shape: PoolShape
) -> Iterator[list[Manifest]]:
    """Run the job of ``worker`` on every item and yield its manifests.

    An item whose worker dies, or is ended because its time is over, is bisected by the process that takes the dead
    one's place; the others go on.
    """
    start_fork_server()  # also for a light job: what follows in the run needs it, and it imports meanwhile
    crew = _PoolCall(_Work(worker, output, pickle.dumps(worker)), shape)
    waiting, left, running = list(reversed(items)), len(items), 0
    try:
        while left:
            crew.grow(left)
            while waiting and running < 2 * crew.size * shape.lanes:
                crew.work.waiting.put(waiting.pop())
                running += 1
            if (outcome := crew.outcome()) is None:
                continue
            left, running = left - 1, running - 1
            if isinstance(outcome, BaseException):
                raise outcome
            yield outcome
    finally:
        crew.dismiss()


def run_item(process: Process, worker: JobWorker, payload: bytes, item: WorkItem, output: Output) -> list[Manifest]:
    """Run one item in a process; what kills it there is found and quarantined. Raises what the job raises.

    ``payload`` is ``worker``, pickled: the same bytes for each item, which are then sent once.
    """
    found = process.run(payload, item, output)
    if not isinstance(found, LostWorker):
        return found
    return quarantine_killers(
        item, worker.job, output, lambda part, rows: process.run(payload, part, output, rows), found
    )


def stream_in_process(function: Callable[[Argument], Iterator[Piece]], argument: Argument) -> Iterator[Piece]:
    """Yield what ``function`` yields in a process of its own, which is kept for the next call.

    Raises what that raises, and PairmillError when the process dies or is silent for too long.
    """
    return _apart(_reach()).process.stream(pickle.dumps(function), argument)


def dismiss() -> None:
    """End the processes that are kept, when they have done what they were asked; the next stage starts others."""
    for seat in _kept:
        seat.process.close()
    _kept.clear()
    _seat.cache_clear()
    _apart.cache_clear()


def pids() -> list[int]:
    """List the ids of the processes that are kept and have started."""
    return [seat.process.pid for seat in _kept if seat.process.pid]


@dataclass(frozen=True, eq=False)
class _CachedProcess:
    """A process that is kept, and how many more items it may have in flight, whichever calls they are of."""

    process: Process
    turns: threading.Semaphore


_kept: list[_CachedProcess] = []


@functools.cache
def _seat(kind: PoolShape, place: int) -> _CachedProcess:
    """Return the process at a place, kept for the life of this one: it has loaded models, which serve later stages."""
    sees = {"CUDA_VISIBLE_DEVICES": kind.devices[place % len(kind.devices)]} if kind.devices else {}
    is_forked = not any(kind.devices)  # the libraries were imported without a GPU
    return _keep(_CachedProcess(Process(sees, is_forked), threading.Semaphore(kind.lanes)))


@functools.lru_cache(maxsize=1)
def _apart(reach: frozenset[tuple[str, str]]) -> _CachedProcess:
    """Return the process that lists sources. It is no fork: where nothing is new, no fork server is started."""
    return _keep(_CachedProcess(Process(is_forked=False), threading.Semaphore(1)))


def _keep(seat: _CachedProcess) -> _CachedProcess:
    _kept.append(seat)
    return seat


def _reach() -> frozenset[tuple[str, str]]:
    """Return the variables by which a place far away is reached: a process keeps what it made of them."""
    named = ((name, value) for name, value in os.environ.items())
    return frozenset(each for each in named if each[0].startswith("AWS_") or each[0].lower().endswith("_proxy"))


def _seat_of(shape: PoolShape, place: int) -> _CachedProcess:
    """Return the process at ``place`` of a pool. Those on CPUs are the same for all pools, however large these are."""
    if shape.is_light and place == 0:
        return _apart(_reach())
    kind = replace(shape, least=0, is_light=False)
    return _seat(kind if any(kind.devices) else replace(kind, processes=0), place)


@dataclass(frozen=True, eq=False)
class _Work:
    """One call of `run_in_pool`: its job, also pickled for the workers, its items, and where outcomes go."""

    worker: JobWorker
    output: Output
    payload: bytes
    waiting: "queue.SimpleQueue[WorkItem | None]" = field(default_factory=queue.SimpleQueue)
    done: "queue.SimpleQueue[list[Manifest] | BaseException]" = field(default_factory=queue.SimpleQueue)
    is_given_up: threading.Event = field(default_factory=threading.Event)
    pace: Pace = field(default_factory=Pace)


class _PoolCall:
    """The processes that do one call's work, each with a thread here for each item that it has in flight.

    The threads keep the workers busy while the caller commits. They end with the call.
    """

    def __init__(self, work: _Work, shape: PoolShape) -> None:
        self.work, self._shape, self.size = work, shape, 0

    def grow(self, left: int) -> None:
        """Take as many processes as ``left`` items are worth."""
        least = self._shape.least or self._shape.processes
        wanted = max(least, self.work.pace.workers(left))
        while self.size < min(wanted, self._shape.processes, left):
            seat = _seat_of(self._shape, self.size)
            for _ in range(self._shape.lanes):
                threading.Thread(target=_hand_out, args=(self.work, seat), name="pool", daemon=True).start()
            self.size += 1

    def outcome(self) -> list[Manifest] | BaseException | None:
        """Wait for what an item came to; None when it is time to ask again how many processes the rest is worth."""
        try:
            return self.work.done.get(timeout=None if self.size == self._shape.processes else Pace.LOOK_SECONDS)
        except queue.Empty:
            return None

    def dismiss(self) -> None:
        """Begin with no more items; what is under way is given up."""
        self.work.is_given_up.set()
        for _ in range(self.size * self._shape.lanes):
            self.work.waiting.put(None)


def _hand_out(work: _Work, seat: _CachedProcess) -> None:
    """Give one process the items that wait, until a None does."""
    while (item := work.waiting.get()) is not None:
        if work.is_given_up.is_set():
            continue
        with seat.turns:
            outcome = _outcome(seat.process, work, item)
        work.done.put(outcome)


def _outcome(process: Process, work: _Work, item: WorkItem) -> list[Manifest] | BaseException:
    try:
        process.start()  # no row is slow because the fork server is still importing
        with work.pace.measured():
            return run_item(process, work.worker, work.payload, item, work.output)
    except BaseException as error:
        return error
