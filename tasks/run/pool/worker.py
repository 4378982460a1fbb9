"""Run a worker process: execute the orders that arrive on a pipe, and report which rows are in progress."""

import faulthandler
import gc
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from typing import Any

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.lack_of_memory import lack_of_memory
from pairmill.catalog.write.commit import Manifest
from pairmill.ops.models.device import run_notes
from pairmill.ops.models.device.engine import BrokenDevice
from pairmill.tasks.run.items import row_reports
from pairmill.tasks.run.items.model_job import ModelJob, one_by_one
from pairmill.tasks.run.items.partition import Job, Output, with_seconds, write_parts
from pairmill.tasks.run.pool.messages import Done, Found, Order, RowLease, RowsFinished
from pairmill.tasks.run.pool.model_line import ModelLine

ONE_THREAD: dict[str, str] = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
ONE_THREAD["TOKENIZERS_PARALLELISM"] = "false"
# Exit status of a process whose device context is broken: only a new process can use the device.
BROKEN_DEVICE = 70
NATIVE_STDERR = 2
MANY_OBJECTS = 50_000  # that a model's load leaves if it imported libraries
# Libraries whose builds must fit each other.
LIBRARIES = frozenset({"torch", "torchvision", "open_clip", "timm", "transformers", "spacy", "thinc"})


@dataclass(frozen=True)
class JobWorker:
    """A job with its settings for a worker process, to which it is sent once."""

    job: Job  # the job
    lanes: int = 1  # above 1, the items in flight of a model job
    feeders: int = 0  # threads that prepare its batches ahead
    share: float = 0.0  # the fraction of a GPU's memory that it may use, 0 without a GPU

    def __call__(self, item: WorkItem, output: Output, rows: int = 0) -> list[Manifest]:
        """Run one item alone; its manifests have its seconds. ``rows`` is as in `ModelJob`."""
        started = time.perf_counter()
        parts = one_by_one(self.job, item, rows) if isinstance(self.job, ModelJob) else self.job(item)
        return with_seconds(write_parts(parts, item, output), time.perf_counter() - started)


def _show_native(is_shown: bool) -> None:
    """Send the output of native libraries to the terminal, or discard it; Python's own standard error always shows."""
    target = os.dup(sys.stderr.fileno()) if is_shown else os.open(os.devnull, os.O_WRONLY)
    os.dup2(target, NATIVE_STDERR)
    os.close(target)


def serve(pipe: Connection, environment: dict[str, str]) -> None:
    """Execute the orders that arrive on ``pipe``, until its other end closes or sends None (a process's main function).

    ``environment`` replaces the environment variables.
    """
    _set_up(environment)
    desk = _WorkerEnd(pipe)
    worker: Any = None
    with suppress(EOFError, OSError):
        while True:
            order: Order | None = pipe.recv()
            if order is None:
                return
            if order.worker is not None:
                worker = desk.begin(pickle.loads(order.worker), worker)
            if isinstance(worker, ModelLine):
                arguments = (order.number, *order.arguments)
                threading.Thread(target=desk.do, args=(worker, order.number, arguments), daemon=True).start()
            else:
                desk.do(worker, order.number, order.arguments)


class _WorkerEnd:
    """The worker's end of the pipe, shared by several threads."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._lock = pipe, threading.Lock()

    def say(self, message: Any) -> None:
        """Send a message."""
        with self._lock:
            self._pipe.send(message)

    def begin(self, worker: Any, before: Any) -> Any:
        """Prepare the callable of the next orders, after closing the engine of the previous callable, ``before``.

        A model job with several lanes gets an engine; any other callable is used as it is.
        """
        if isinstance(before, ModelLine):
            before.close()
        # A library's message about a damaged file names no file; the quarantine row does.
        _show_native(isinstance(worker, JobWorker) and not getattr(worker.job, "reads_sources", False))
        if not isinstance(worker, JobWorker):
            return worker
        if worker.share:
            from pairmill.ops.models.device.device import keep_to_share

            keep_to_share(worker.share)
        job = worker.job
        return ModelLine(job, worker.feeders, self.say) if worker.lanes > 1 and isinstance(job, ModelJob) else worker

    def listen(self, worker: Any, number: int, item: Any) -> None:
        """Report progress within ``item`` for order ``number``, which runs alone in this process; load its model first.

        A death while the libraries and the model load blames no row.
        """
        seconds = row_reports.item_seconds(len(item.keys)) if isinstance(item, WorkItem) else row_reports.ITEM_SECONDS
        if isinstance(worker, JobWorker) and isinstance(worker.job, ModelJob):
            self.say(RowLease(number, 0, (), seconds))
            with _uncollected():
                worker.job.load()
        self.say(RowLease(number, 0, None, seconds))
        row_reports.listen(
            lambda key, seconds: self.say(RowLease(number, 0, (key,) if key else None, seconds)),
            lambda rows: self.say(RowsFinished(number, rows)),
        )

    def do(self, worker: Any, number: int, arguments: tuple) -> None:
        """Call ``worker`` and send the outcome."""
        with suppress(OSError):  # the caller has closed the pipe
            self.say(self._done(worker, number, arguments))

    def _done(self, worker: Any, number: int, arguments: tuple) -> Done:
        """Call ``worker``, sending each piece that it yields; return the last message."""
        try:
            if not isinstance(worker, ModelLine):
                self.listen(worker, number, arguments[0])
            found = worker(*arguments)
            if not isinstance(found, Iterator):
                return Done(number, with_notes(found, run_notes.take() if found else ()))
            for piece in found:
                self.say(Found(number, piece))
            return Done(number, [])
        except BrokenDevice:
            traceback.print_exc()
            os._exit(BROKEN_DEVICE)
        except Exception as error:
            trace, error = traceback.format_exc(), import_fault(error) or error
            try:
                pickle.loads(pickle.dumps(error))
            except Exception:  # it cannot be pickled
                return Done(number, [], RuntimeError(f"{type(error).__name__}: {error}"), trace)
            return Done(number, [], error, trace)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Collect no garbage in the `with` block, and exempt what it imports: 600,000 objects of models' libraries."""
    gc.disable()
    try:
        yield
    finally:
        if gc.get_count()[0] > MANY_OBJECTS:
            gc.freeze()
        gc.enable()


def import_fault(error: Exception) -> PairmillError | None:
    """Return an error of one line if a library of LIBRARIES raised ``error`` while it was imported, else None."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__) if frame.f_code.co_name == "<module>"]
    names = [str(frame.f_globals.get("__name__")).partition(".")[0] for frame in frames]
    if not names or names[-1] not in LIBRARIES or lack_of_memory(error) is not None:
        return None
    why = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return PairmillError(f"{names[-1]} cannot be imported ({why}). `pairmill doctor` says which packages do not fit.")


def with_notes(manifests: list[Manifest], notes: tuple[str, ...]) -> list[Manifest]:
    """Return the manifests with ``notes`` added to the first one, unchanged if either is empty."""
    if not manifests or not notes:
        return manifests
    return [replace(manifests[0], notes=(*manifests[0].notes, *notes)), *manifests[1:]]


def _set_up(environment: dict[str, str]) -> None:
    """Initialise a worker with the caller's current environment (S3 keys); the fork server's may be older.

    A worker whose caller was killed exits; the fork server then exits too. Ctrl-C in a terminal reaches every process,
    so workers ignore it and the caller decides. SIGUSR1 dumps the stack of every thread.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stderr = os.fdopen(os.dup(NATIVE_STDERR), "w", buffering=1, errors="backslashreplace")
    faulthandler.register(signal.SIGUSR1, file=sys.stderr, all_threads=True)
    os.environ.clear()
    os.environ.update(environment | ONE_THREAD)
    threading.Thread(target=_exit_with, args=(parent_process(),), daemon=True).start()


def _exit_with(caller: Any) -> None:
    """Exit this process without cleanup when ``caller`` has ended."""
    caller.join()
    os._exit(1)
