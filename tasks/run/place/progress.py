"""Define the progress of a step, in rows that people count (pictures, sentences, files), and who follows a run."""

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.write.commit import Manifest


@dataclass(frozen=True)
class Progress:
    """Progress of one round of a step.

    Attributes:
        step: The step's name.
        done: Finished rows.
        total: All rows of the round.
        unit: What a row is, in the plural; '' for a step whose rows mean nothing to people.
        items: Finished work items. A run commits whole items.
        of_items: All work items of the round.
        quarantined: Items of the finished rows that went to the quarantine.
    """

    step: str
    done: int
    total: int
    unit: str = "pictures"
    items: int = 0
    of_items: int = 0
    quarantined: int = 0

    @property
    def is_begin(self) -> bool:
        """Whether nothing is finished yet."""
        return not (self.done or self.items)

    @property
    def is_end(self) -> bool:
        """Whether all is finished and committed."""
        return (self.done, self.items) == (self.total, self.of_items)


ShowProgress = Callable[[Progress], None]


def not_shown(progress: Progress) -> None:
    """Ignore progress."""


class Observer:
    """What a session tells about its run; this class ignores all of it. An error of an observer ends the run."""

    def progressed(self, progress: Progress) -> None:
        """Note the progress of a step, as `Session.progress` gets it."""

    def finished(self, step: str, manifests: Sequence[Manifest], gpus: float) -> None:
        """Note the priced partitions of one finished item, by a worker with ``gpus`` GPUs. They are not committed."""

    def committed(self, manifests: Sequence[Manifest], seconds: float) -> None:
        """Note that partitions are committed, and the seconds that it took. Called in any thread."""

    def stalled(self, step: str, report: str) -> None:
        """Note that a step finished nothing for a long time, and that the workers of ``report`` were ended."""


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
        """Add the rows of one finished item; return all finished rows."""
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
        """Return the progress as shown."""
        return Progress(step, self.shown, self.total, unit, self.finished, self.items, self.quarantined)

    def end(self, step: str, unit: str) -> Progress:
        """Return the progress of a round that is committed."""
        return Progress(step, self.total, self.total, unit, self.items, self.items, self.quarantined)
