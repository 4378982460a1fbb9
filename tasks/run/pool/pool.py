"""Run work items on a pool of worker processes of this machine.

concurrent.futures does not fit: its pool does not know which process has which item, breaks as a whole when one process
dies, and cannot kill one that hangs.
"""

import functools
import os
import pickle
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import floor
from typing import ClassVar, TypeVar

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write.commit import Manifest
from pairmill.tasks.run.items.partition import Output
from pairmill.tasks.run.pool import fork_server
from pairmill.tasks.run.pool.poison import LostWorker, quarantine_killers
from pairmill.tasks.run.pool.process import Process, Report
from pairmill.tasks.run.pool.watchdog import Watchdog
from pairmill.tasks.run.pool.worker import JobWorker, with_notes

Argument = TypeVar("Argument")
Piece = TypeVar("Piece")
_Outcome = list[Manifest] | BaseException
SHOW_SECONDS = 2.0  # between two looks at the finished rows of unfinished items


@dataclass(frozen=True)
class PoolShape:
    """The size of a process pool, and the devices and items in flight of each process."""

    processes: int  # the most processes
    devices: tuple[str, ...] = ()  # CUDA_VISIBLE_DEVICES of each process, in turn ('' or none: CPU work)
    lanes: int = 1  # items in flight in each process
    # processes to start at once, 0 for all; the others start when the remaining work is worth their start
    least: int = 0


def run_in_pool(
    items: Sequence[WorkItem],
    worker: JobWorker,
    output: Output,
    shape: PoolShape,
    show: Report = lambda rows: None,
    watchdog: Watchdog | None = None,
) -> Iterator[list[Manifest]]:
    """Run the job of ``worker`` on every item; yield each item's manifests.

    An item whose worker dies or exceeds its time limit is bisected by the process that replaces the dead one. The other
    processes continue. ``show`` is called every few seconds with the number of finished rows of unfinished items. The
    manifests carry the notes of ``watchdog``, which ends processes that hang. Raises the job's errors.
    """
    crew = _PoolCall(worker, output, shape)
    waiting, left, running = list(reversed(items)), len(items), 0
    watchdog = watchdog or Watchdog()
    try:
        while left:
            crew.grow(left)
            while waiting and running < 2 * crew.size * shape.lanes:
                crew.waiting.put(waiting.pop())
                running += 1
            if (outcome := crew.outcome()) is None:
                ahead = crew.ahead.total()
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
    report: Report = lambda rows: None,
    is_given_up: Callable[[], bool] = lambda: False,
) -> list[Manifest]:
    """Run one item in a process and return its manifests; find and quarantine rows that kill the process.

    Raises the job's errors. ``payload`` is the pickled ``worker``, sent once if every item passes the same object.
    ``report`` is as in `Process.run`. Nothing is tried again once ``is_given_up()``: a row that hangs would keep the
    process from later stages.
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
    """Run the generator ``function`` on ``argument`` in a separate process, which later calls reuse; yield its values.

    Raises the errors of ``function``, and PairmillError when the process dies or is silent for too long.
    """
    return apart().stream(pickle.dumps(function), argument)


def dismiss() -> None:
    """Stop all cached worker processes, once they have finished their orders. The next stage starts new processes."""
    while cached_processes:
        cached_processes.popitem()[1].close()


# Processes live as long as this one: later stages reuse their loaded models. Keys are (shape, place) for those of a
# pool, and the settings of remote storage for those that list sources.
cached_processes: dict[object, Process] = {}


def _process_at(shape: PoolShape, place: int) -> Process:
    """Return worker process number ``place`` of a pool, from a cache; create it if it is missing.

    Pools on CPUs share their processes, whatever the size of the pool. The first is the one that lists sources: a small
    run has no other, and imports what its own models need.
    """
    on_cpus = not any(shape.devices)
    if on_cpus and place == 0 and shape.lanes == 1:
        return apart()
    kind = replace(shape, least=0, processes=0 if on_cpus else shape.processes)
    if (kind, place) not in cached_processes:
        sees = {"CUDA_VISIBLE_DEVICES": kind.devices[place % len(kind.devices)]} if kind.devices else {}
        # The fork server imported the libraries without a GPU.
        cached_processes[kind, place] = Process(sees, on_cpus and (place > 0 or fork_server.is_running()), kind.lanes)
    return cached_processes[kind, place]


def apart() -> Process:
    """Return the process that lists sources and is the first of each pool on CPUs.

    It is spawned unless the fork server runs, whose imports cost a small run more than its work. It caches clients of
    remote storage: changed settings of these (AWS_*, *_proxy) get a new process.
    """
    remote = (name for name in os.environ if name.startswith("AWS_") or name.lower().endswith("_proxy"))
    reach = frozenset((name, os.environ[name]) for name in remote)
    if reach not in cached_processes:
        cached_processes[reach] = Process({"CUDA_VISIBLE_DEVICES": ""}, fork_server.is_running())
    return cached_processes[reach]


class _PoolCall:
    """The processes of one `run_in_pool` call, with one thread here for each item in flight.

    The threads keep the workers busy while the caller commits. They end with the call.
    """

    def __init__(self, worker: JobWorker, output: Output, shape: PoolShape) -> None:
        self._worker, self._payload, self._output, self._shape = worker, pickle.dumps(worker), output, shape
        self.waiting: queue.SimpleQueue[WorkItem | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[WorkItem, _Outcome]] = queue.SimpleQueue()
        self._is_given_up = threading.Event()
        self._pace, self.ahead = Pace(), RowsAhead()
        self._processes: list[Process] = []

    @property
    def size(self) -> int:
        """The number of processes so far."""
        return len(self._processes)

    def grow(self, left: int) -> None:
        """Add processes, up to the number that ``left`` remaining items justify; see `Pace`."""
        wanted = max(self._shape.least or self._shape.processes, self._pace.workers(left))
        while self.size < min(wanted, self._shape.processes, left):
            process = _process_at(self._shape, self.size)
            for _ in range(self._shape.lanes):
                threading.Thread(target=self._hand_out, args=(process,), name="pool", daemon=True).start()
            self._processes.append(process)

    def outcome(self) -> _Outcome | None:
        """Wait for one item's outcome; return None when it is time to show progress or add processes."""
        try:
            is_full = self.size == self._shape.processes
            item, outcome = self._done.get(timeout=SHOW_SECONDS if is_full else Pace.LOOK_SECONDS)
        except queue.Empty:
            return None
        self.ahead.end(item.digest)  # not before: its rows would be missing from a look in between
        return outcome

    def end_hung(self, watchdog: Watchdog) -> None:
        """Let the watchdog end processes that hang. If it gives up, end all processes and raise its PairmillError."""
        try:
            watchdog.look({process: process.in_hand() for process in self._processes}, Process.end_hung)
        except PairmillError:
            self._is_given_up.set()
            for process in self._processes:
                process.end_hung()
            raise

    def dismiss(self) -> None:
        """Start no more items; drop those in flight."""
        self._is_given_up.set()
        for _ in range(self.size * self._shape.lanes):
            self.waiting.put(None)

    def _hand_out(self, process: Process) -> None:
        """Run queued items in one process, until None is queued."""
        while (item := self.waiting.get()) is not None:
            if not self._is_given_up.is_set():
                with process.turns:
                    outcome = self._run(process, item)
                self._done.put((item, outcome))

    def _run(self, process: Process, item: WorkItem) -> _Outcome:
        """Run one item; return its manifests, or the exception."""
        try:
            process.start()  # before the clock starts: the fork server may still be importing
            with self._pace.measured():
                report, given_up = functools.partial(self.ahead.add, item.digest), self._is_given_up.is_set
                return run_item(process, self._worker, self._payload, item, self._output, report, given_up)
        except BaseException as error:
            return error


class Pace:
    """Durations of a stage's items, unfinished ones too, from which the number of workers follows. Thread-safe."""

    # One worker is justified per START_SECONDS of remaining work: forking it and loading a small CLIP or captioner
    # takes 0.6 to 1.3 CPU seconds before its first row. The fork server imports for 2 to 3 CPU seconds: it is started,
    # with the second worker, for SERVER_SECONDS of remaining work. The demo's 72 documents, one run each on two busy
    # CPUs: 34.8 CPU s with one worker, 32.1 with up to two, of which server and second worker took 4.9.
    START_SECONDS: ClassVar[float] = 2.0
    SERVER_SECONDS: ClassVar[float] = 15.0
    LOOK_SECONDS: ClassVar[float] = 0.25

    def __init__(self) -> None:
        self._finished, self._seconds, self._longest = 0, 0.0, 0.0
        self._began: dict[int, float] = {}
        self._lock = threading.Lock()

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Time the ``with`` block as one item."""
        thread = threading.get_ident()
        with self._lock:
            began = self._began[thread] = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                del self._began[thread]
                self._finished += 1
                self._seconds += (spent := time.monotonic() - began)
                self._longest = max(self._longest, spent)

    def workers(self, left: int) -> int:
        """Return the number of workers that the ``left`` remaining items justify, running items included.

        Without the fork server the longest item does not count: it is the first one, which imports and loads a model.
        """
        now, is_served = time.monotonic(), fork_server.is_running()
        with self._lock:
            under_way = sum(now - began for began in self._began.values())
            if is_served:
                return count_workers(self._seconds + under_way, self._finished, left, is_served)
            if self._finished < 2 and under_way < self.SERVER_SECONDS:
                return 1
            seconds, finished = self._seconds - self._longest, max(0, self._finished - 1)
        return count_workers(seconds + under_way, finished, left, is_served)


def count_workers(seconds: float, finished: int, left: int, is_served: bool) -> int:
    """Return the number of workers, at least 1, that ``left`` items justify if ``finished`` items took ``seconds``.

    One worker is justified per START_SECONDS of work, only one below SERVER_SECONDS unless the fork server runs
    (``is_served``). Until an item has finished, the seconds so far count as the duration of one item.
    """
    remaining = seconds / max(1, finished) * left
    return max(1, floor(remaining / Pace.START_SECONDS)) if is_served or remaining >= Pace.SERVER_SECONDS else 1


class RowsAhead:
    """Count the finished rows of unfinished items. Thread-safe."""

    def __init__(self) -> None:
        self._rows: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, item: str, rows: int) -> None:
        """Add finished rows of an item."""
        with self._lock:
            self._rows[item] += rows

    def end(self, item: str) -> None:
        """Drop the rows of an item: it is finished, or its rows are computed again."""
        with self._lock:
            self._rows.pop(item, None)

    def total(self) -> int:
        """Return the finished rows of all unfinished items."""
        with self._lock:
            return self._rows.total()
