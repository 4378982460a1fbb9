"""Define the progress of a step, in rows that people count (pictures, sentences, files), and observers of a run."""

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.write.commit import Manifest


@dataclass(frozen=True)
class Progress:
    """Progress of one round of a step."""

    step: str
    done: int  # finished rows
    total: int  # all rows of the round
    # name of the rows in the plural, such as 'pictures'; '' for a step whose rows mean nothing to people
    unit: str = "pictures"
    items: int = 0  # finished work items. A run commits whole items.
    of_items: int = 0  # all work items of the round
    quarantined: int = 0  # number of items that the finished rows sent to quarantine

    @property
    def is_begin(self) -> bool:
        """Whether this is the start of the round: no row or item is finished."""
        return not (self.done or self.items)

    @property
    def is_end(self) -> bool:
        """Whether this is the end of the round: all rows and items are finished and committed."""
        return (self.done, self.items) == (self.total, self.of_items)


ShowProgress = Callable[[Progress], None]


def not_shown(progress: Progress) -> None:
    """Ignore progress: the default of callbacks."""


class Observer:
    """Base class for observers of a run, whose methods a session calls. Here they do nothing; an error ends the run."""

    def progressed(self, progress: Progress) -> None:
        """Handle a step's progress, at each start of a round and after finished items."""

    def finished(self, step: str, manifests: Sequence[Manifest], gpus: float) -> None:
        """Handle a finished item: its priced manifests, not yet committed, by a worker with ``gpus`` GPUs."""

    def stalled(self, step: str, report: str) -> None:
        """Handle a stall: a step finished nothing for a long time, and the workers in ``report`` were ended."""


class RowCount:
    """Count the finished and the quarantined rows of a round by its manifests. ``shown`` never decreases.

    A shard's items finish in any order. If a shard has several items, the count may be off by the difference of their
    sizes until all of them are finished.
    """

    def __init__(self, items: Sequence[WorkItem]) -> None:
        self.total, self.items = sum(len(item.keys) for item in items), len(items)
        self.done, self.shown, self.quarantined, self.finished = 0, 0, 0, 0
        self._sizes: dict[str, list[int]] = defaultdict(list)
        for item in items:
            for part in item.by_shard:
                self._sizes[part.shard].append(len(part.keys))

    def add(self, manifests: Collection[Manifest]) -> int:
        """Count one finished item by its manifests; return the number of all finished rows."""
        self.finished += 1
        self.quarantined += sum(manifest.rows for manifest in manifests if manifest.table == "quarantine")
        for shard in {manifest.shard for manifest in manifests}:
            self.done += self._sizes[shard].pop() if self._sizes[shard] else 0
        return self.done

    def advance(self, ahead: int = 0) -> bool:
        """Update ``shown`` by the finished items and ``ahead`` rows of unfinished ones; return whether it increased."""
        before, self.shown = self.shown, max(self.shown, min(self.total, self.done + ahead))
        return self.shown > before

    def progress(self, step: str, unit: str) -> Progress:
        """Return the progress of the running round, with ``shown`` as the finished rows."""
        return Progress(step, self.shown, self.total, unit, self.finished, self.items, self.quarantined)

    def end(self, step: str, unit: str) -> Progress:
        """Return the progress at the end of the round, when all items are committed."""
        return Progress(step, self.total, self.total, unit, self.items, self.items, self.quarantined)
