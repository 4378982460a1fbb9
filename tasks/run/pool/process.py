"""Run jobs in a supervised worker process, and report the rows in progress when it dies or hangs."""

import itertools
import logging
import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from typing import Any

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write.commit import Manifest
from pairmill.tasks.run.items import row_reports
from pairmill.tasks.run.items.partition import Output
from pairmill.tasks.run.pool.fork_server import one_thread_each, start_fork_server, without_interrupts, without_main
from pairmill.tasks.run.pool.messages import Done, Found, Order, RowLease, RowsFinished
from pairmill.tasks.run.pool.poison import LostWorker
from pairmill.tasks.run.pool.watchdog import NAMED
from pairmill.tasks.run.pool.worker import BROKEN_DEVICE, serve

LOG = logging.getLogger("pairmill.workers")
LOG.setLevel(logging.INFO)  # a terminal shows warnings only, a Prefect task shows all
# Seconds between checks for an overdue worker, and seconds that a hung worker gets to dump its stacks.
LOOK_SECONDS, DUMP_SECONDS = 1.0, 1.0
# No row is to blame when the process dies this many times in a row before it starts one.
MAX_IDLE_DEATHS = 3
DIED = "a worker process that ran it alone died"
STUCK = "a worker process that ran it alone was ended when its time was over"
BROKE = "it broke the device's context"
# How native code ends a process; not SIGILL, by which a library that was built for another CPU ends at every row.
CRASHES = {each.value: each.name for each in (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE)}


Report = Callable[[int], None]  # called with a number of rows that have their results


class LoadDeaths(PairmillError):
    """Raised when worker processes die again and again before their first row: the model does not fit this machine."""


class Process:
    """One supervised worker process, started on demand and restarted after each death. Thread-safe.

    Args:
        environment: Variables set in the process on top of the caller's own, such as CUDA_VISIBLE_DEVICES.
        is_forked: Whether to fork it from the fork server, so that it shares the imported libraries; else it is spawned
            and imports them itself.
        lanes: The permits of ``turns``, a semaphore that limits the items in flight over all callers.
    """

    def __init__(self, environment: Mapping[str, str], is_forked: bool, lanes: int = 1) -> None:
        self._environment, self._is_forked = environment, is_forked
        self.turns = threading.Semaphore(lanes)
        self._life: _RunningProcess | None = None
        self._lock = threading.Lock()
        self._idle_deaths = 0

    @property
    def pid(self) -> int:
        """Id of the process, 0 before its first start."""
        return self._life.pid if self._life else 0

    def start(self) -> None:
        """Start the process unless it is running."""
        with self._lock:
            self._living()

    def run(
        self, worker: bytes, item: WorkItem, output: Output, rows: int = 0, report: Report = lambda rows: None
    ) -> list[Manifest] | LostWorker:
        """Run one item with a pickled `JobWorker`; return its manifests, or LostWorker when the process died.

        Raises the job's errors. With ``rows`` 1 a model job takes its rows one by one, because one of them killed a
        process before. ``report`` is called after each batch with its number of rows.
        """
        number, life = self._order(worker, (item, output, rows), row_reports.item_seconds(len(item.keys)), report)
        try:
            if isinstance(said := life.next(number), LostWorker):
                return said
            self._idle_deaths = 0
            return said.result()
        finally:
            life.forget(number)

    def stream(self, function: bytes, argument: Any, is_last_try: bool = False) -> Iterator[Any]:
        """Call a pickled generator function with ``argument`` in the process, and yield its values.

        The call is tried once more in a new process if the process dies before the first value: it may have been killed
        while it had no work, and it may be another's memory that the system was short of.
        Raises the function's errors, and PairmillError when the process dies or is silent for ITEM_SECONDS.
        """
        number, life = self._order(function, (argument,), row_reports.ITEM_SECONDS)
        said: Found | Done | LostWorker | None = None
        try:
            while not isinstance(said, Done):
                before, said = said, life.next(number)
                if isinstance(said, Found):
                    yield said.found
                elif isinstance(said, LostWorker) and said.reason == "timeout":
                    raise PairmillError(f"no result within {row_reports.ITEM_SECONDS:g} s")
                elif isinstance(said, LostWorker):
                    if before is not None or is_last_try:
                        raise PairmillError("its worker process died (killed, or out of memory); run again")
                    yield from self.stream(function, argument, is_last_try=True)
                    return
        finally:
            life.forget(number)
            if not isinstance(said, Done):
                life.end()
        if isinstance(said, Done):
            said.result()

    def in_hand(self) -> str:
        """Return a text with the process id and the keys of its rows in progress, '' if it has no work."""
        life = self._life
        return life.in_hand() if life else ""

    def end_hung(self) -> None:
        """Kill the process, after it has logged its threads' stacks; its orders end as 'timeout'."""
        if (life := self._life) is not None:
            life.end_hung()

    def close(self) -> None:
        """Ask the process to exit once it has finished its orders; a later order starts a new process."""
        with self._lock:
            if self._life is not None:
                self._life.close()
                self._life = None

    def _order(
        self, worker: bytes, arguments: tuple, seconds: float, report: Report = lambda rows: None
    ) -> tuple[int, "_RunningProcess"]:
        """Send an order, to a new process if the last one has died; return the order's number and the process."""
        with self._lock:
            life = self._living()
            return life.send(worker, arguments, seconds, report), life

    def _living(self) -> "_RunningProcess":
        """Return the running process; start a new one if the last one has died.

        Raises LoadDeaths after MAX_IDLE_DEATHS consecutive deaths without a row in progress.
        """
        if self._life is None or self._life.is_over():
            self._idle_deaths = self._idle_deaths + 1 if self._life is not None and self._life.was_idle() else 0
            if self._idle_deaths == MAX_IDLE_DEATHS:
                raise LoadDeaths(
                    f"worker processes died {MAX_IDLE_DEATHS} times before they had a row in hand, maybe while they "
                    "imported a library (see `pairmill doctor`) or loaded a model (out of memory?); run fewer at once "
                    "(--workers, --model NAME:replicas=1; compute in Prefect)"
                )
            self._life = _RunningProcess(self._environment, self._is_forked)
        return self._life


class _RunningProcess:
    """A worker process from start to death: the leases on its rows, and an inbox for each awaited order."""

    def __init__(self, environment: Mapping[str, str], is_forked: bool) -> None:
        context: Any = multiprocessing.get_context("forkserver" if is_forked else "spawn")
        self._pipe, theirs = context.Pipe()
        self._process: Any = context.Process(target=serve, args=(theirs, {**os.environ, **environment}), daemon=True)
        if is_forked:
            start_fork_server()
        with nullcontext() if is_forked else one_thread_each(), without_main(), without_interrupts():
            self._process.start()
        theirs.close()
        self.pid: int = self._process.pid
        self._worker = b""
        self._numbers = itertools.count(1)
        self._inboxes: dict[int, queue.SimpleQueue[Any]] = {}
        self._reports: dict[int, Report] = {}
        self._holds: dict[tuple[int, int], tuple[RowLease, float]] = {}
        self._lock = threading.Lock()
        self._stuck: set[int] = set()
        self._ended = threading.Event()
        threading.Thread(target=self._listen, name="pool", daemon=True).start()

    def is_over(self) -> bool:
        """Return whether the process has ended."""
        return self._ended.is_set() or not self._process.is_alive()

    def was_idle(self) -> bool:
        """Return whether the process had no row in progress when it died."""
        return bool(self._holds) and all(hold.keys == () for hold, _ in self._holds.values())

    def send(self, worker: bytes, arguments: tuple, seconds: float, report: Report) -> int:
        """Send an order that must report within ``seconds``; return its number."""
        number = next(self._numbers)
        with self._lock:
            self._inboxes[number], self._reports[number] = queue.SimpleQueue(), report
            self._holds[number, 0] = RowLease(number, 0, (), seconds), time.monotonic() + seconds
        with suppress(OSError):  # the process died: `next` reports it
            self._pipe.send(Order(number, None if worker is self._worker else worker, arguments))
            self._worker = worker
        return number

    def next(self, number: int) -> Any:
        """Block until the next message of order ``number``; return it, or a LostWorker when the process has ended."""
        inbox = self._inboxes[number]
        while True:
            with suppress(queue.Empty):
                said = inbox.get(timeout=LOOK_SECONDS)
                return self._lost(number) if said is None else said
            self.end_hung(overdue_only=True)

    def forget(self, number: int) -> None:
        """Drop the inbox and the leases of an order."""
        with self._lock:
            self._inboxes.pop(number, None)
            self._reports.pop(number, None)
            if not self._ended.is_set():  # after a death `was_idle` still reads the leases
                for hold in [hold for hold in self._holds if hold[0] == number]:
                    del self._holds[hold]

    def _listen(self) -> None:
        """Read the messages until the process has ended, then tell every waiting thread. The pipe's only reader."""
        with suppress(EOFError, OSError):
            while True:
                self._hear(self._pipe.recv())
        self._process.join()
        self._ended.set()
        with self._lock:
            for inbox in self._inboxes.values():
                inbox.put(None)
        self._pipe.close()

    def _hear(self, said: Any) -> None:
        """Process one message: update the leases, or put it into its order's inbox."""
        with self._lock:
            if said.number not in self._inboxes:
                return
            if isinstance(said, RowsFinished):
                self._reports[said.number](said.rows)
            elif not isinstance(said, RowLease):
                self._inboxes[said.number].put(said)
            elif said.seconds:
                self._holds[said.number, said.place] = said, time.monotonic() + said.seconds
            else:
                self._holds.pop((said.number, said.place), None)

    def close(self) -> None:
        """Ask the process to exit after its current orders."""
        with suppress(OSError):
            self._pipe.send(None)

    def end(self) -> None:
        """Kill the process and wait until it has ended."""
        self._process.kill()
        self._ended.wait()

    def in_hand(self) -> str:
        """Return a text with the process id and its leased keys, '' if no order has begun (it may be importing)."""
        with self._lock:
            holds = [hold for hold, _ in self._holds.values() if hold.keys != ()]
        if not holds or self._ended.is_set():  # is_over() would take the exit code from the thread that waits for it
            return ""
        keys = list(dict.fromkeys(key for hold in holds for key in hold.keys or ()))
        more = f" and {len(keys) - NAMED:,} more" if len(keys) > NAMED else ""
        return f"worker process {self.pid} had {', '.join(keys[:NAMED]) + more if keys else 'an item without a row'}"

    def end_hung(self, overdue_only: bool = False) -> None:
        """Kill the process, as one whose orders are all overdue, after it has dumped its threads' stacks to its log.

        With ``overdue_only``, only if the lease of an order is overdue, and because of these orders alone.
        """
        now = time.monotonic()
        with self._lock:
            stuck = {hold.number for hold, until in self._holds.values() if until < now or not overdue_only}
            if not stuck or self._stuck:  # it has no orders, or is being killed
                return
            self._stuck = stuck
        LOG.warning("worker process %d does not go on: its threads are in its log", self.pid)
        with suppress(OSError):
            os.kill(self.pid, signal.SIGUSR1)
            time.sleep(DUMP_SECONDS)
        self._process.kill()

    def _lost(self, number: int) -> LostWorker:
        """Describe the loss for order ``number``: reason, detail and the keys in progress."""
        with self._lock:
            held = [hold.keys for (order, _), (hold, _) in self._holds.items() if order == number]
        keys = None if None in held else tuple(dict.fromkeys(key for each in held for key in each or ()))
        if number in self._stuck:
            return LostWorker("timeout", STUCK, keys)
        broke = self._process.exitcode == BROKEN_DEVICE
        crash = CRASHES.get(-self._process.exitcode, "")
        return LostWorker("poison", f"{DIED}: {BROKE}" if broke else DIED, keys, crash)
