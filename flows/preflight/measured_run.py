"""Run a sample by the steps of a real run, and measure what each step takes."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pairmill.catalog.write.commit import Manifest
from pairmill.tasks.run.place.progress import Observer
from pairmill.tasks.run.session import Session

_EVERY_SECONDS = 1.0


@dataclass(frozen=True)
class Item:
    """One finished work item: its rows, the seconds of its worker, GPUs of the worker, and what its tokens cost."""

    rows: int
    seconds: float
    gpus: float
    cost: float


@dataclass
class Measured(Observer):
    """What the steps of a run took.

    Attributes:
        items: The finished items by step.
        seconds: Seconds by the clock by step, items included.
        memory: The most bytes that this process and its workers had at once (proportional set size).
    """

    items: dict[str, list[Item]] = field(default_factory=lambda: defaultdict(list))
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    memory: int = 0
    _step: str = ""

    def finished(self, step: str, manifests: Sequence[Manifest], gpus: float) -> None:
        """Note a finished item. Its partitions all have the seconds of the whole item."""
        if manifests:
            cost = sum(each.usage.cost for each in manifests if each.usage)
            rows = max(each.rows for each in manifests)
            self.items[self._step].append(Item(rows, max(each.seconds for each in manifests), gpus, cost))

    def run_step(self, step: Callable[[Session], Any], session: Session) -> Any:
        """Run one step and note its seconds."""
        self._step = step.__name__
        began = time.monotonic()
        try:
            return step(session)
        finally:
            self.seconds[self._step] += time.monotonic() - began

    @contextmanager
    def watching_memory(self) -> Iterator[None]:
        """Note the memory every second, until the block ends."""
        ended = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(ended,), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()

    def _watch(self, ended: threading.Event) -> None:
        while not ended.wait(_EVERY_SECONDS):
            self.memory = max(self.memory, _memory())


def _memory() -> int:
    """Return the bytes of this process and its descendants; pages that they share count once."""
    import psutil

    own, total = psutil.Process(), 0
    for process in (own, *own.children(recursive=True)):
        try:
            found = process.memory_full_info()
            total += getattr(found, "pss", 0) or found.rss
        except psutil.Error:  # it has ended meanwhile
            continue
    return total
