"""The body of a worker process: do what comes by a pipe, and say on the way what is in its hands."""

import faulthandler
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from typing import Any

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.write.commit import Manifest
from pairmill.ops.models.device.engine import BrokenDevice
from pairmill.tasks.run import time_limit
from pairmill.tasks.run.messages import Done, Found, Order, RowLease
from pairmill.tasks.run.model_job import ModelJob, one_by_one
from pairmill.tasks.run.model_line import ModelLine
from pairmill.tasks.run.partition import Job, Output, timed_parts

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
# The status of a process that ended itself because only a new one can use the device again.
BROKEN_DEVICE = 70


@dataclass(frozen=True)
class JobWorker:
    """A job as a worker runs it, sent once to each process.

    ``lanes`` above 1 are the items of a model job that it has in flight, whose batches ``feeders`` threads prepare
    ahead; ``share`` is the part of a GPU's memory that it keeps to, 0 without a GPU.
    """

    job: Job
    lanes: int = 1
    feeders: int = 0
    share: float = 0.0

    def __call__(self, item: WorkItem, output: Output, rows: int = 0) -> list[Manifest]:
        """Run one item by itself, with its seconds in its manifests; ``rows`` is as in `ModelJob`."""
        job = self.job
        return timed_parts(
            lambda: one_by_one(job, item, rows) if isinstance(job, ModelJob) else job(item), item, output
        )


def serve(pipe: Connection, environment: dict[str, str]) -> None:
    """Do what comes by ``pipe``, until its other end is closed or None comes."""
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
                desk.listen(order.number, order.arguments[0])
                desk.do(worker, order.number, order.arguments)


class _WorkerEnd:
    """The worker's end of the pipe, for several threads."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._lock = pipe, threading.Lock()

    def say(self, message: Any) -> None:
        with self._lock:
            self._pipe.send(message)

    def begin(self, worker: Any, before: Any) -> Any:
        """Make ready what is to be called; ``before`` is what was."""
        if isinstance(before, ModelLine):
            before.close()
        if not isinstance(worker, JobWorker):
            return worker
        if worker.share:
            from pairmill.ops.models.device.device import keep_to_share

            keep_to_share(worker.share)
        job = worker.job
        return ModelLine(job, worker.feeders, self.say) if worker.lanes > 1 and isinstance(job, ModelJob) else worker

    def listen(self, number: int, item: Any) -> None:
        """Say of order ``number``, which is done alone, where it is in ``item``."""
        seconds = time_limit.of_item(len(item.keys)) if isinstance(item, WorkItem) else time_limit.ITEM_SECONDS
        self.say(RowLease(number, 0, None, seconds))
        time_limit.listen(lambda key, seconds: self.say(RowLease(number, 0, (key,) if key else None, seconds)))

    def do(self, worker: Any, number: int, arguments: tuple) -> None:
        """Call ``worker``, and say what came of it."""
        with suppress(OSError):  # nobody listens any more
            self.say(self._done(worker, number, arguments))

    def _done(self, worker: Any, number: int, arguments: tuple) -> Done:
        try:
            found = worker(*arguments)
            if not isinstance(found, Iterator):
                return Done(number, found)
            for piece in found:
                self.say(Found(number, piece))
            return Done(number, [])
        except BrokenDevice:
            traceback.print_exc()
            os._exit(BROKEN_DEVICE)
        except Exception as error:
            trace = traceback.format_exc()
            try:
                pickle.loads(pickle.dumps(error))
            except Exception:
                return Done(number, [], RuntimeError(f"{type(error).__name__}: {error}"), trace)
            return Done(number, [], error, trace)


def _set_up(environment: dict[str, str]) -> None:
    """Initialise a worker: the caller's environment as it is now (S3 keys), which the fork server may have older.

    A worker whose caller was killed ends itself; the fork server then ends too. Ctrl-C in a terminal reaches every
    process: the caller alone decides what it means. SIGUSR1 prints what every thread is at.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    os.environ.clear()
    os.environ.update(environment | ONE_THREAD)
    threading.Thread(target=_exit_with, args=(parent_process(),), daemon=True).start()


def _exit_with(caller: Any) -> None:
    """End this process, without cleaning up, when ``caller`` has ended."""
    caller.join()
    os._exit(1)
