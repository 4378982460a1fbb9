"""Measure a sample's steps on this machine, and forecast hours, disk, memory and money of the whole run."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import hypot
from pathlib import Path
from threading import Event, Thread
from typing import Any

import psutil
from pydantic import BaseModel, ValidationError

from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.whole_file import whole_file
from pairmill.catalog.write.commit import Manifest
from pairmill.flows.preflight.yield_forecast import YieldForecast
from pairmill.ops.whole.cluster_sample import Range, ratio_range
from pairmill.tasks.run.place.progress import Observer
from pairmill.tasks.run.session import Session

# The steps over the pictures that are left after duplicates; all others work over all rows of the units.
AFTER_COPIES = frozenset({"caption", "tag", "fuse", "score_pairs"})
# Bytes of a picture in the search of duplicates, which this process holds: hash, parts and edges.
BYTES_A_PICTURE = 126
# Steps in this process (training, grouping) grow with a power of the pictures between these two.
POWER = 1.3
EVERY_SECONDS = 1.0  # between two looks at the memory


@dataclass(frozen=True)
class Item:
    """One finished work item: its rows, seconds and GPUs of its worker, and the price of its tokens."""

    rows: int
    seconds: float
    gpus: float
    cost: float

    @property
    def gpu_seconds(self) -> float:
        """Seconds of its worker, times the worker's GPUs."""
        return self.gpus * self.seconds


class _Kept(BaseModel):
    """The content of `Measured.file`."""

    items: dict[str, list[Item]]
    seconds: dict[str, float]
    memory: int


@dataclass
class Measured(Observer):
    """Observer of a run that measures its steps."""

    items: dict[str, list[Item]] = field(default_factory=lambda: defaultdict(list))  # the finished items by step
    # wall-clock seconds by step, items included
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    memory: int = 0  # peak bytes of this process and its workers together (proportional set size)
    # where the measurements are kept after each step, with those of an earlier, ended run of the same sample
    file: Path | None = None
    _step: str = ""

    def __post_init__(self) -> None:
        if self.file and self.file.exists():
            try:
                found = _Kept.model_validate_json(self.file.read_bytes())
            except ValidationError as error:
                raise PairmillError(f"'{self.file}' is damaged; name a new folder, or remove this one.") from error
            self.items.update(found.items)
            self.seconds.update(found.seconds)
            self.memory = found.memory

    def finished(self, step: str, manifests: Sequence[Manifest], gpus: float) -> None:
        """Record a finished item of the current step. Each of its manifests has the seconds of the whole item."""
        if manifests:
            cost = sum(each.usage.cost for each in manifests if each.usage)
            rows = max(each.rows for each in manifests)
            self.items[self._step].append(Item(rows, max(each.seconds for each in manifests), gpus, cost))

    def run_step(self, step: Callable[[Session], Any], session: Session) -> Any:
        """Run one step, record its seconds, and return its result."""
        self._step = step.__name__
        began = time.monotonic()
        try:
            return step(session)
        finally:
            self.seconds[self._step] += time.monotonic() - began
            if self.file:
                kept = _Kept(items=self.items, seconds=self.seconds, memory=self.memory)
                with whole_file(self.file) as new:
                    new.write_text(kept.model_dump_json(), encoding="utf-8")

    @contextmanager
    def watching_memory(self) -> Iterator[None]:
        """Record the peak memory during the ``with`` block, sampled every EVERY_SECONDS."""
        ended = Event()

        def watch() -> None:
            while not ended.wait(EVERY_SECONDS):
                self.memory = max(self.memory, _memory())

        watcher = Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()


@dataclass(frozen=True)
class CostForecast:
    """Costs of a run on this machine, each with its 90 % interval."""

    hours: Range  # wall-clock hours
    worker_hours: Range  # hours of all workers together
    gpu_hours: Range  # hours of workers with a GPU, times their GPUs
    gigabytes: Range  # files that the run writes to the lake, in 10**9 bytes
    memory: Range  # memory of all processes of this machine, in 10**9 bytes
    money: Range | None  # price of the tokens; None if no model has a price


def forecast_cost(
    measured: Measured, found: YieldForecast, share: float, written: tuple[int, int], workers: int, is_priced: bool
) -> CostForecast:
    """Extrapolate the measured costs of a sample to the whole run.

    ``found`` is the forecast of the yield, ``share`` the share of all documents in the sample, ``written`` the bytes of
    pictures, and of other files, that the sample wrote. ``workers``: the most at once. ``is_priced``: any model has a
    price.
    """
    sums: dict[str, Range] = dict.fromkeys(("seconds", "gpu_seconds", "cost"), Range(0.0, 0.0, 0.0))
    clock = Range(0.0, 0.0, 0.0)
    pictures = found.pictures
    most = pictures.high / max(pictures.value, 1.0)
    for step, seconds in measured.seconds.items():
        items = measured.items.get(step, [])
        grown = found.after_copies if step in AFTER_COPIES else 1 / share
        work = {what: _extrapolate(items, what, grown, pictures) for what in sums}
        sums = {what: sums[what] + work[what] for what in sums}
        own = max(0.0, seconds - sum(each.seconds for each in items) / min(workers, max(1, len(items))))
        if items:  # the rest of the step is its start: processes and models
            clock += work["seconds"].times(1 / workers) + Range(own, own, own * min(grown, 2.0))
        else:
            clock += Range(own, own * grown, own * grown**POWER)
    stored, others = (n / share for n in written)
    # A file of few rows is mostly footer, and the whole has fuller files, not so many more: hence the lower end.
    least_others = written[1] + (others - written[1]) / 4
    bytes_stored = found.n_bytes.times(stored / max(found.n_bytes.value, 1.0))
    memory = measured.memory
    return CostForecast(
        hours=clock.times(1 / 3600),
        worker_hours=sums["seconds"].times(1 / 3600),
        gpu_hours=sums["gpu_seconds"].times(1 / 3600),
        gigabytes=(bytes_stored + Range(least_others, others, others * most)).times(1e-9),
        memory=(pictures.times(BYTES_A_PICTURE) + Range(memory, memory, memory)).times(1e-9),
        money=sums["cost"] if is_priced else None,
    )


def _extrapolate(items: list[Item], what: str, grown: float, pictures: Range) -> Range:
    """Extrapolate ``what`` of the items to ``grown`` times the rows; join variance of rate and of ``pictures``."""
    items = [each for each in items if what != "gpu_seconds" or each.gpus]
    rows = sum(each.rows for each in items)
    rate = ratio_range([(getattr(each, what), each.rows) for each in items]) if rows else Range(0.0, 0.0, 0.0)
    if not rate.value:
        return Range(0.0, 0.0, 0.0)
    value, n = rate.value * rows * grown, max(pictures.value, 1.0)
    below = hypot(1 - rate.low / rate.value, 1 - pictures.low / n)
    above = hypot(rate.high / rate.value - 1, pictures.high / n - 1)
    return Range(max(0.0, value * (1 - below)), value, value * (1 + above))


def _memory() -> int:
    """Return the bytes of this process and its descendants; pages that they share count once."""
    own, total = psutil.Process(), 0
    for process in (own, *own.children(recursive=True)):
        try:
            found = process.memory_full_info()
            total += getattr(found, "pss", 0) or found.rss
        except psutil.Error:  # it has ended meanwhile
            continue
    return total
