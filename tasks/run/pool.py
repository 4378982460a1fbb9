"""Run work items on a pool of forked processes of this machine.

Not concurrent.futures: its pool does not know which process holds which item, dies as a whole with one of them, and
cannot end one that is stuck.
"""

import functools
import multiprocessing
import os
import pickle
import queue
import signal
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from catalog.pending.item import WorkItem
from catalog.terms.error import PairmillError
from catalog.write.commit import Manifest
from tasks.run import time_limit
from tasks.run.partition import Job, Output, Worker
from tasks.run.poison import Lost, quarantine_killers
from tasks.run.remains import sweep

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
# What every worker needs of other people's code. None of it starts a thread or touches a GPU when it is imported.
PRELOADED = ["duckdb", "numpy", "pandas", "pyarrow.parquet", "simplejpeg", "torch"]

# In seconds: the system counts milliseconds in 31 bits.
LONGEST_POLL = 86_400.0
Argument = TypeVar("Argument")
Piece = TypeVar("Piece")


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


def run_in_pool(items: Sequence[WorkItem], job: Job, output: Output, n_workers: int) -> Iterator[list[Manifest]]:
    """Run ``job`` on every item and yield its manifests.

    An item whose worker dies, or is ended because its time is over, is bisected by the process that takes the dead
    one's place; the others go on.
    """
    work = _Work(job, output, pickle.dumps(Worker(job, output)))
    waiting, running = list(reversed(items)), 0
    pool = _pool(n_workers)
    try:
        while waiting or running:
            while waiting and running < 2 * n_workers:
                pool.waiting.put((work, waiting.pop()))
                running += 1
            outcome = work.done.get()
            running -= 1
            if isinstance(outcome, BaseException):
                raise outcome
            yield outcome
    finally:
        work.is_given_up.set()


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
def _apart(reach: frozenset[tuple[str, str]]) -> "_Process":
    return _Process()


@functools.cache
def _pool(n_workers: int) -> "_Pool":
    """Return the pool of this size, kept for the process's life: workers that loaded a model serve later stages."""
    return _Pool(n_workers)


@dataclass(frozen=True, eq=False)
class _Work:
    """One call of `run_in_pool`: its job, also pickled for the workers, and where outcomes go."""

    job: Job
    output: Output
    payload: bytes
    done: "queue.SimpleQueue[list[Manifest] | BaseException]" = field(default_factory=queue.SimpleQueue)
    is_given_up: threading.Event = field(default_factory=threading.Event)


class _Pool:
    """Worker processes, each with a thread here that hands it one item at a time from ``waiting``.

    The threads keep the workers busy while the caller commits, and each knows what its worker holds. They end with
    the pool.
    """

    def __init__(self, n_workers: int) -> None:
        warm_up()
        self.waiting: queue.SimpleQueue[tuple[_Work, WorkItem] | None] = queue.SimpleQueue()
        self.processes = [_Process() for _ in range(n_workers)]
        for process in self.processes:
            threading.Thread(target=_hand_out, args=(self.waiting, process), name="pool", daemon=True).start()
        weakref.finalize(self, _dismiss, self.waiting, n_workers)


def _dismiss(waiting: "queue.SimpleQueue[tuple[_Work, WorkItem] | None]", n_workers: int) -> None:
    for _ in range(n_workers):
        waiting.put(None)


def _hand_out(waiting: "queue.SimpleQueue[tuple[_Work, WorkItem] | None]", process: "_Process") -> None:
    """Give one process the items that wait, until a None does."""
    while (found := waiting.get()) is not None:
        work, item = found
        if not work.is_given_up.is_set():
            work.done.put(_outcome(process, work, item))
    process.close()


def _outcome(process: "_Process", work: _Work, item: WorkItem) -> list[Manifest] | BaseException:
    try:
        found = process.run(work.payload, item)
        if isinstance(found, Lost):
            attempt = functools.partial(process.run, work.payload)
            return quarantine_killers(item, work.job, work.output, attempt, found)
        return found
    except BaseException as error:
        return error


class _Process:
    """One worker process, started when it is needed and again after each death."""

    def __init__(self) -> None:
        self._process: Any = None
        self._pipe: Connection | None = None
        self._payload = b""

    @property
    def pid(self) -> int:
        """The process's id, 0 before its first item."""
        return self._process.pid if self._process else 0

    def run(self, payload: bytes, item: WorkItem) -> list[Manifest] | Lost:
        """Run one item; Lost when its process died or was ended. Raises what the job raises."""
        pipe = self._ready()
        at, until = "", time.monotonic() + time_limit.of_item(len(item.keys))
        said: Any = None
        try:
            pipe.send((None if payload is self._payload else payload, item))
            self._payload = payload
            while (left := until - time.monotonic()) > 0:
                if pipe.poll(min(left, LONGEST_POLL)):
                    said = pipe.recv()
                    if isinstance(said, _Done):
                        break
                    at, until = said.key, time.monotonic() + said.seconds
        except (EOFError, OSError):
            self._end()
            return Lost("poison", "a worker process that ran it alone died", at)
        if isinstance(said, _Done):
            return said.result()
        self._end()
        return Lost("timeout", "a worker process that ran it alone was ended when its time was over", at)

    def stream(self, payload: bytes, argument: Any) -> Iterator[Any]:
        """Yield the pieces that a function makes of ``argument``. Raises what it raises, PairmillError when it dies."""
        pipe, last = self._ready(), None
        try:
            pipe.send((payload, argument))
            while last is None and pipe.poll(time_limit.ITEM_SECONDS):
                said = pipe.recv()
                if isinstance(said, _Done):
                    last = said
                elif isinstance(said, _Piece):
                    yield said.found
        except (EOFError, OSError):
            raise PairmillError("the process that does it died (killed, or out of memory); run again") from None
        finally:
            if last is None:
                self._end()
        if last is None:
            raise PairmillError(f"nothing came of it within {time_limit.ITEM_SECONDS:g} s")
        last.result()

    def _ready(self) -> Connection:
        """Start the process unless it runs; return the pipe to it."""
        if self._process is None or not self._process.is_alive():
            self._start()
        assert self._pipe is not None
        return self._pipe

    def _start(self) -> None:
        context = multiprocessing.get_context("forkserver")
        self._pipe, theirs = context.Pipe()
        self._payload = b""
        self._process = context.Process(target=_serve, args=(theirs, dict(os.environ)), daemon=True)
        self._process.start()
        theirs.close()

    def close(self) -> None:
        """Let the process end by itself."""
        if self._pipe is not None:
            self._pipe.close()
            self._process = self._pipe = None

    def _end(self) -> None:
        self._process.kill()
        self._process.join()
        self.close()


@dataclass(frozen=True)
class _At:
    """A worker says that it is at row ``key`` and will say more within ``seconds``."""

    key: str
    seconds: float


@dataclass(frozen=True)
class _Piece:
    """A part of what a function yields."""

    found: Any


@dataclass(frozen=True)
class _Done:
    """A worker's last word on an item."""

    manifests: list[Manifest]
    error: BaseException | None = None
    trace: str = ""

    def result(self) -> list[Manifest]:
        """Return the manifests. Raises what the job raised, with the worker's traceback as a note."""
        if self.error is not None:
            self.error.add_note(f"In a worker process:\n{self.trace}")
            raise self.error
        return self.manifests


def _serve(pipe: Connection, environment: dict[str, str]) -> None:
    """Run items that come by ``pipe``, until its other end is closed. The body of a worker process."""
    _set_up_worker(environment)
    time_limit.listen(lambda key, seconds: pipe.send(_At(key, seconds)))
    worker: Any = None
    with suppress(EOFError, OSError):
        while True:
            payload, item = pipe.recv()
            worker = pickle.loads(payload) if payload is not None else worker
            pipe.send(_done(worker, item, pipe))


def _done(worker: Any, item: Any, pipe: Connection) -> _Done:
    try:
        found = worker(item)
        if not isinstance(found, Iterator):
            return _Done(found)
        for piece in found:
            pipe.send(_Piece(piece))
        return _Done([])
    except Exception as error:
        trace = traceback.format_exc()
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            return _Done([], RuntimeError(f"{type(error).__name__}: {error}"), trace)
        return _Done([], error, trace)


def _set_up_worker(environment: dict[str, str]) -> None:
    """Initialise a worker: the caller's environment as it is now (S3 keys), which the fork server may have older.

    A worker whose caller was killed ends itself; the fork server then ends too. Ctrl-C in a terminal reaches every
    process: the caller alone decides what it means.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.clear()
    os.environ.update(environment | ONE_THREAD)
    threading.Thread(target=_exit_with, args=(multiprocessing.parent_process(),), daemon=True).start()


def _exit_with(caller: Any) -> None:
    """End this process, without cleaning up, when ``caller`` has ended."""
    caller.join()
    os._exit(1)
