"""Run a model job on its engine inside a worker process: several items in flight, one device, one model."""

import os
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.write.commit import Manifest
from pairmill.ops.models.device.engine import Engine, RemoteEngine
from pairmill.ops.models.device.failures import first_line, is_no_room
from pairmill.ops.models.generation import Stepwise
from pairmill.ops.models.model_error import ModelError, UnfitDevice
from pairmill.tasks.run.items import row_reports
from pairmill.tasks.run.items.model_job import ModelJob, Piece
from pairmill.tasks.run.items.partition import Output, with_seconds, write_parts
from pairmill.tasks.run.pool.messages import RowLease, RowsFinished

# A batch hangs when it takes 10 times the median of recent batches, but at least 60 s. The first 3 batches may take
# 1800 s each, because a model may still load or compile.
TIMES_MEDIAN, LEAST_SECONDS, FIRST_SECONDS, FIRST_BATCHES = 10, 60.0, 1800.0, 3
# A client of model servers has timeouts of its own; a batch that is still in flight after this time hangs otherwise.
ELSEWHERE_SECONDS = 7200.0
# The most bytes of batches that are prepared ahead of a device, in pinned memory where there is a GPU. 15 feeders may
# be 32 batches ahead, which is 77 GB a GPU for a model that sees 17 tiles in fp32.
HELD_BYTES = min(4 << 30, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 16)

Say = Callable[[RowLease | RowsFinished], None]


class ModelLine:
    """A model job with its engine, called in one thread an item; ``say`` sends row leases to the supervisor."""

    def __init__(self, job: ModelJob, feeders: int, say: Say) -> None:
        self._job = job
        self._say, self._watched = say, _Watched(job, say)
        if in_flight := getattr(job, "max_in_flight", 0):
            self._engine = RemoteEngine(self._watched, feeders, in_flight)
        else:
            self._engine = Engine(self._watched, feeders, HELD_BYTES)
        self._alone, self._loading = threading.Lock(), threading.Lock()
        self._is_loaded = False

    def __call__(self, number: int, item: WorkItem, output: Output, rows: int = 0) -> list[Manifest]:
        """Run the item of order ``number``; its manifests have the seconds that the device took for it.

        With ``rows`` 1 the rows run one at a time, because one of them may kill this process.
        """
        self._say(RowLease(number, 0, (), row_reports.item_seconds(len(item.keys))))  # no row in progress yet
        self._load()
        pieces = ((number, piece) for piece in self._job.pieces(item, rows))
        if rows:
            with self._alone:
                found = [out for piece in pieces for out in self._engine.run(iter([piece]))]
        else:
            found = self._engine.run(pieces)
        manifests = write_parts(self._job.parts(item, found), item, output)
        return with_seconds(manifests, self._watched.spent(number))

    def _load(self) -> None:
        """Load the model once. Raises UnfitDevice if the device runs out of memory."""
        with self._loading:
            if not self._is_loaded:
                try:
                    self._job.load()
                except Exception as error:
                    if isinstance(error, ModelError) or not is_no_room(error):
                        raise
                    raise UnfitDevice(f"model '{self._job.model}' does not fit here: {first_line(error)}") from error
                self._is_loaded = True

    def close(self) -> None:
        """Stop the engine's threads."""
        self._engine.close()


@dataclass(frozen=True)
class _Launched:
    """A batch of an order that runs on the device, with its rows, lease number (``place``) and start time."""

    number: int
    rows: int
    place: int
    started: float
    running: Any


class _Watched:
    """The parts of a model job for an engine, each with a lease on its rows and a time limit."""

    def __init__(self, job: ModelJob, say: Say) -> None:
        self._job, self._say, self._places = job, say, count(1)
        self._is_elsewhere = bool(getattr(job, "max_in_flight", 0))
        self._seconds: deque[float] = deque(maxlen=50)
        self._spent: dict[int, float] = {}
        self._last = 0.0

    def prepare(self, numbered: tuple[int, Piece]) -> tuple[int, Piece, Any]:
        """Preprocess a piece of a numbered order under a lease."""
        (number, piece), place = numbered, next(self._places)
        self._say(RowLease(number, place, piece.keys, row_reports.ROW_SECONDS * len(piece.keys)))
        try:
            return number, piece, self._job.prepare(piece)
        finally:
            self._say(RowLease(number, place, None, 0))

    def infer(self, prepared: tuple[int, Piece, Any]) -> _Launched:
        """Launch a batch, leasing its rows until it is fetched."""
        number, piece, ready = prepared
        place, started = next(self._places), time.monotonic()
        # Rows at a server cannot kill this process: if it dies, they are innocent.
        self._say(RowLease(number, place, () if self._is_elsewhere else piece.keys, self._limit()))
        return _Launched(number, len(piece.keys), place, started, self._job.infer(ready))

    def stepwise(self, launched: _Launched) -> Stepwise | None:
        """Return a launched batch, if its job decodes it beside others."""
        stepwise = getattr(self._job, "stepwise", None)
        return stepwise(launched.running) if stepwise else None

    def fetch(self, launched: _Launched) -> Any:
        """Wait for a batch, record its device seconds and release its lease."""
        number = launched.number
        try:
            return self._job.fetch(launched.running)
        finally:
            now = time.monotonic()
            seconds, self._last = now - max(launched.started, self._last), now  # without the wait for the batch before
            self._seconds.append(now - launched.started)  # beside other batches, which share its time
            self._spent[number] = self._spent.get(number, 0.0) + seconds
            self._say(RowLease(number, launched.place, None, 0))
            self._say(RowsFinished(number, launched.rows))

    def spent(self, number: int) -> float:
        """Return the device seconds of an order, and forget them."""
        return self._spent.pop(number, 0.0)

    def _limit(self) -> float:
        """Return the seconds that the next batch may take."""
        if self._is_elsewhere:
            return ELSEWHERE_SECONDS
        if len(self._seconds) < FIRST_BATCHES:
            return FIRST_SECONDS
        return max(LEAST_SECONDS, TIMES_MEDIAN * statistics.median(self._seconds))
