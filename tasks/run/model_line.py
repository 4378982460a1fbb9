"""Run a model job on its engine inside a worker process: several items at a time, one device, one model."""

import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.write.commit import Manifest
from pairmill.ops.models.device.engine import Engine, RemoteEngine
from pairmill.tasks.run import time_limit
from pairmill.tasks.run.messages import RowLease
from pairmill.tasks.run.model_job import ModelJob, Piece
from pairmill.tasks.run.partition import Output, with_seconds, write_parts

# A batch that takes ten times as long as the median of the last ones is stuck; one of a model that loads or compiles at
# its first batches may take half an hour, and no honest one is called stuck within a minute.
TIMES_MEDIAN, LEAST_SECONDS, FIRST_SECONDS, FIRST_BATCHES = 10, 60.0, 1800.0, 3
# A client of servers gives up by itself; a process that it does not let go of for so long is stuck in some other way.
ELSEWHERE_SECONDS = 7200.0

Say = Callable[[RowLease], None]


class ModelLine:
    """A model job with its engine, called by a thread an item. ``say`` is told what is in this process's hands."""

    def __init__(self, job: ModelJob, feeders: int, say: Say) -> None:
        self._job = job
        self._say, self._watched = say, _Watched(job, say)
        under_way = getattr(job, "max_in_flight", 0)
        self._engine = RemoteEngine(self._watched, feeders, under_way) if under_way else Engine(self._watched, feeders)
        self._alone, self._loading = threading.Lock(), threading.Lock()
        self._is_loaded = False

    def __call__(self, number: int, item: WorkItem, output: Output, rows: int = 0) -> list[Manifest]:
        """Run the item of order ``number``; its manifests have the seconds that the device took for it. ``rows`` 1: row
        by row, since one of them may end this process."""
        self._say(RowLease(number, 0, (), time_limit.of_item(len(item.keys))))  # nothing of it yet
        self._load()
        pieces = (_Numbered(number, piece) for piece in self._job.pieces(item, rows))
        if rows:
            with self._alone:
                found = [out for piece in pieces for out in self._engine.run(iter([piece]))]
        else:
            found = self._engine.run(pieces)
        manifests = write_parts(self._job.parts(item, found), item, output)
        return with_seconds(manifests, self._watched.spent(number))

    def _load(self) -> None:
        with self._loading:
            if not self._is_loaded:
                self._job.load()
                self._is_loaded = True

    def close(self) -> None:
        """End the engine's threads."""
        self._engine.close()


@dataclass(frozen=True)
class _Numbered:
    """A piece and the order that it is of."""

    number: int
    piece: Piece


@dataclass(frozen=True)
class _Launched:
    """What runs on the device: of which order, since when, and the place of its hold."""

    number: int
    place: int
    started: float
    running: Any


class _Watched:
    """The halves of a model job, each of which says what it has in its hands, and for how long that may be."""

    def __init__(self, job: ModelJob, say: Say) -> None:
        self._job, self._say, self._places = job, say, count(1)
        self._is_elsewhere = bool(getattr(job, "max_in_flight", 0))
        self._seconds: deque[float] = deque(maxlen=50)
        self._spent: dict[int, float] = {}
        self._last = 0.0

    def prepare(self, numbered: _Numbered) -> tuple[_Numbered, Any]:
        piece = numbered.piece
        with self._held(numbered, time_limit.ROW_SECONDS * len(piece.keys)):
            return numbered, self._job.prepare(piece)

    def infer(self, prepared: tuple[_Numbered, Any]) -> _Launched:
        numbered, ready = prepared
        place, started = next(self._places), time.monotonic()
        # What a server works at ends no process of ours: should this one die then, its rows are innocent.
        self._say(RowLease(numbered.number, place, () if self._is_elsewhere else numbered.piece.keys, self._limit()))
        return _Launched(numbered.number, place, started, self._job.infer(ready))

    def fetch(self, launched: _Launched) -> Any:
        try:
            return self._job.fetch(launched.running)
        finally:
            now = time.monotonic()
            seconds, self._last = now - max(launched.started, self._last), now  # it waited for the batch before
            self._seconds.append(seconds)
            self._spent[launched.number] = self._spent.get(launched.number, 0.0) + seconds
            self._say(RowLease(launched.number, launched.place, None, 0))

    def spent(self, number: int) -> float:
        """Return, once, the seconds that the device took for an order."""
        return self._spent.pop(number, 0.0)

    def _limit(self) -> float:
        if self._is_elsewhere:
            return ELSEWHERE_SECONDS
        if len(self._seconds) < FIRST_BATCHES:
            return FIRST_SECONDS
        return max(LEAST_SECONDS, TIMES_MEDIAN * statistics.median(self._seconds))

    @contextmanager
    def _held(self, numbered: _Numbered, seconds: float) -> Iterator[None]:
        place = next(self._places)
        self._say(RowLease(numbered.number, place, numbered.piece.keys, seconds))
        try:
            yield
        finally:
            self._say(RowLease(numbered.number, place, None, 0))
