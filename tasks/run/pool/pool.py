"""Run work items on a pool of worker processes of this machine.

concurrent.futures does not fit: its pool does not know which process has which item, breaks as a whole when one process
dies, and cannot kill one that hangs.
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
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write.commit import Manifest
from pairmill.tasks.run.items.finished_rows import Report, RowsAhead, ignore
from pairmill.tasks.run.items.partition import Output
from pairmill.tasks.run.pool.fork_server import start_fork_server
from pairmill.tasks.run.pool.pace import Pace
from pairmill.tasks.run.pool.poison import LostWorker, quarantine_killers
from pairmill.tasks.run.pool.process import Process
from pairmill.tasks.run.pool.watchdog import Watchdog
from pairmill.tasks.run.pool.worker import JobWorker, with_notes

Argument = TypeVar("Argument")
Piece = TypeVar("Piece")
_Outcome = list[Manifest] | BaseException
SHOW_SECONDS = 2.0  # between two looks at the finished rows of unfinished items


@dataclass(frozen=True)
class PoolShape:
    """The size of a process pool, and the devices and items in flight of each process.

    Attributes:
        processes: The most processes.
        devices: What each process sees as CUDA_VISIBLE_DEVICES, by place ('' or none: CPU work).
        lanes: Items in flight in each process.
        least: Processes used at once, 0 for all; the others start when the remaining work is worth their start.
        is_light: The job needs no model, so that the process that lists sources is the pool's first.
    """

    processes: int
    devices: tuple[str, ...] = ()
    lanes: int = 1
    least: int = 0
    is_light: bool = False


def run_in_pool(
    items: Sequence[WorkItem],
    worker: JobWorker,
    output: Output,
    shape: PoolShape,
    show: Report = ignore,
    watchdog: Watchdog | None = None,
) -> Iterator[list[Manifest]]:
    """Run the job of ``worker`` on every item; yield each item's manifests.

    An item whose worker dies or exceeds its time limit is bisected by the process that replaces the dead one. The other
    processes continue. ``show`` is called now and then with the finished rows of the items that are not finished. The
    manifests have the notes of ``watchdog``, which ends processes that hang.
    """
    start_fork_server()  # also for a light job: later stages need it, and it imports in the meantime
    crew = _PoolCall(_Work(worker, output, pickle.dumps(worker)), shape)
    waiting, left, running = list(reversed(items)), len(items), 0
    watchdog = watchdog or Watchdog()
    try:
        while left:
            crew.grow(left)
            while waiting and running < 2 * crew.size * shape.lanes:
                crew.work.waiting.put(waiting.pop())
                running += 1
            if (outcome := crew.outcome()) is None:
                ahead = crew.work.ahead.total()
                show(ahead)
                watchdog.saw(ahead)
                crew.end_hung(watchdog)
                continue
            watchdog.saw(-1)
            left, running = left - 1, running - 1
            if isinstance(outcome, BaseException):
                raise outcome
            yield with_notes(outcome, watchdog.take())
    finally:
        crew.dismiss()


def run_item(
    process: Process,
    worker: JobWorker,
    payload: bytes,
    item: WorkItem,
    output: Output,
    report: Report = ignore,
    is_given_up: Callable[[], bool] = lambda: False,
) -> list[Manifest]:
    """Run one item in a process; find and quarantine the rows that kill it. Raises what the job raises.

    ``payload`` is the pickled ``worker``. The same bytes object for every item is sent once. ``report`` is as in
    `Process.run`. Nothing is tried again once ``is_given_up``: a row that hangs would keep the process from later
    stages.
    """
    found = process.run(payload, item, output, report=report)
    if not isinstance(found, LostWorker):
        return found

    def again(part: WorkItem, rows: int) -> list[Manifest] | LostWorker:
        if is_given_up():
            raise PairmillError("the stage has ended")
        return process.run(payload, part, output, rows)

    return quarantine_killers(item, worker.job, output, again, found)


def stream_in_process(function: Callable[[Argument], Iterator[Piece]], argument: Argument) -> Iterator[Piece]:
    """Yield what the generator ``function`` yields, run in a separate process that is reused by the next call.

    Raises what ``function`` raises, and PairmillError when the process dies or is silent for too long.
    """
    return _apart(_reach()).process.stream(pickle.dumps(function), argument)


def dismiss() -> None:
    """Stop all cached worker processes, once they have finished their orders. The next stage starts new ones."""
    for seat in _kept:
        seat.process.close()
    _kept.clear()
    _seat.cache_clear()
    _apart.cache_clear()


def pids() -> list[int]:
    """List the process ids of the cached worker processes that have started."""
    return [seat.process.pid for seat in _kept if seat.process.pid]


@dataclass(frozen=True, eq=False)
class _CachedProcess:
    """A cached worker process with a semaphore that limits its items in flight, over all calls."""

    process: Process
    turns: threading.Semaphore


_kept: list[_CachedProcess] = []


@functools.cache
def _seat(kind: PoolShape, place: int) -> _CachedProcess:
    """Return the process at ``place``, cached for the life of this process: later stages reuse its loaded models."""
    sees = {"CUDA_VISIBLE_DEVICES": kind.devices[place % len(kind.devices)]} if kind.devices else {}
    is_forked = not any(kind.devices)  # the fork server imported the libraries without a GPU
    return _keep(_CachedProcess(Process(sees, is_forked), threading.Semaphore(kind.lanes)))


@functools.lru_cache(maxsize=1)
def _apart(reach: frozenset[tuple[str, str]]) -> _CachedProcess:
    """Return the process that lists sources. It is spawned, so that a run with nothing new starts no fork server."""
    return _keep(_CachedProcess(Process(is_forked=False), threading.Semaphore(1)))


def _keep(seat: _CachedProcess) -> _CachedProcess:
    """Register a process for `dismiss`, and return it."""
    _kept.append(seat)
    return seat


def _reach() -> frozenset[tuple[str, str]]:
    """Return the variables that configure remote storage (AWS_*, *_proxy): a process caches clients made from them."""
    named = ((name, value) for name, value in os.environ.items())
    return frozenset(each for each in named if each[0].startswith("AWS_") or each[0].lower().endswith("_proxy"))


def _seat_of(shape: PoolShape, place: int) -> _CachedProcess:
    """Return the process at ``place`` of a pool. Pools on CPUs share their processes, whatever the size of the pool."""
    if shape.is_light and place == 0:
        return _apart(_reach())
    kind = replace(shape, least=0, is_light=False)
    return _seat(kind if any(kind.devices) else replace(kind, processes=0), place)


@dataclass(frozen=True, eq=False)
class _Work:
    """One call of `run_in_pool`: the job (also pickled for the workers), the queue of items, the queue of outcomes."""

    worker: JobWorker
    output: Output
    payload: bytes
    waiting: "queue.SimpleQueue[WorkItem | None]" = field(default_factory=queue.SimpleQueue)
    done: "queue.SimpleQueue[tuple[WorkItem, _Outcome]]" = field(default_factory=queue.SimpleQueue)
    is_given_up: threading.Event = field(default_factory=threading.Event)
    pace: Pace = field(default_factory=Pace)
    ahead: RowsAhead = field(default_factory=RowsAhead)


class _PoolCall:
    """The processes of one `run_in_pool` call, with one thread here for each item in flight.

    The threads keep the workers busy while the caller commits. They end with the call.
    """

    def __init__(self, work: _Work, shape: PoolShape) -> None:
        self.work, self._shape, self.size = work, shape, 0
        self.processes: list[Process] = []

    def grow(self, left: int) -> None:
        """Add processes until there are as many as ``left`` items justify, see `Pace`."""
        least = self._shape.least or self._shape.processes
        wanted = max(least, self.work.pace.workers(left))
        while self.size < min(wanted, self._shape.processes, left):
            seat = _seat_of(self._shape, self.size)
            for _ in range(self._shape.lanes):
                threading.Thread(target=_hand_out, args=(self.work, seat), name="pool", daemon=True).start()
            self.size += 1
            self.processes.append(seat.process)

    def outcome(self) -> _Outcome | None:
        """Wait for one item's outcome; return None when it is time to show progress or add processes."""
        try:
            is_full = self.size == self._shape.processes
            item, outcome = self.work.done.get(timeout=SHOW_SECONDS if is_full else Pace.LOOK_SECONDS)
        except queue.Empty:
            return None
        self.work.ahead.end(item.digest)  # not before: its rows would be missing from a look in between
        return outcome

    def end_hung(self, watchdog: Watchdog) -> None:
        """Let the watchdog end what hangs. If it gives up, also end what was tried again meanwhile, and raise."""
        try:
            watchdog.look(self.processes)
        except PairmillError:
            self.work.is_given_up.set()
            for process in self.processes:
                process.end_hung()
            raise

    def dismiss(self) -> None:
        """Start no more items; drop those in flight."""
        self.work.is_given_up.set()
        for _ in range(self.size * self._shape.lanes):
            self.work.waiting.put(None)


def _hand_out(work: _Work, seat: _CachedProcess) -> None:
    """Run queued items in one process, until None is queued."""
    while (item := work.waiting.get()) is not None:
        if work.is_given_up.is_set():
            continue
        with seat.turns:
            outcome = _outcome(seat.process, work, item)
        work.done.put((item, outcome))


def _outcome(process: Process, work: _Work, item: WorkItem) -> _Outcome:
    """Run one item; return its manifests, or the exception."""
    try:
        process.start()  # before the clock starts: the fork server may still be importing
        with work.pace.measured():
            report = functools.partial(work.ahead.add, item.digest)
            given_up = work.is_given_up.is_set
            return run_item(process, work.worker, work.payload, item, work.output, report, given_up)
    except BaseException as error:
        return error
