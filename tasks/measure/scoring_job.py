"""Run all pending scorers over the images or sentences of a work item, models apart from CPU work."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from pairmill.catalog.pending.item import WorkItem
from pairmill.tasks.run.items import scored
from pairmill.tasks.run.items.model_job import Piece, one_by_one
from pairmill.tasks.run.items.partition import Part
from pairmill.tasks.run.items.scored import Scored, model_of, null_parts, score_parts
from pairmill.tasks.run.place.identity import Bound


@dataclass(frozen=True)
class ScoringJob(ABC):
    """Model job: score the rows of one shard into the tables that lack them.

    Attributes:
        item_rows: The most rows of an item into which small shards are joined.
        scorers: The scorers of all tables that an item may ask for.
    """

    item_rows: ClassVar[int]

    scorers: tuple[Bound, ...]

    @property
    @abstractmethod
    def stage(self) -> str:
        """The step's name, which quarantine rows have."""

    @property
    def model(self) -> str:
        """The recipe's name of the model, '' without one."""
        return model_of(self.scorers)

    def __call__(self, item: WorkItem) -> Iterable[Part]:
        """Score an item piece after piece, in this thread."""
        return one_by_one(self, item)

    def load(self) -> None:
        """Load the models."""
        scored.load(self.scorers)

    @abstractmethod
    def pieces(self, item: WorkItem, rows: int = 0) -> Iterator[Piece]:
        """Yield the item's rows in batches of ``rows``, 0 for the job's own size."""

    @abstractmethod
    def prepare(self, piece: Piece) -> Scored:
        """Run the scorers without a model and prepare the models' input."""

    def infer(self, ready: Scored) -> Scored:
        """Launch the models on the prepared inputs, without waiting for the device."""
        return scored.infer(ready)

    def fetch(self, running: Scored) -> Scored:
        """Wait for the models."""
        return scored.fetch(running)

    def parts(self, item: WorkItem, found: list[Scored]) -> Iterable[Part]:
        """Turn all pieces into one part per score, and the faults into quarantine rows."""
        return score_parts(self.wanted(item.tables), found, self.stage)

    def poisoned(self, item: WorkItem) -> list[Part]:
        """Make rows of NULLs for rows that kill their worker, so that they are not pending again."""
        return null_parts(self.wanted(item.tables), item.keys)

    def wanted(self, tables: tuple[str, ...]) -> list[Bound]:
        """Return the scorers of these tables."""
        return [each for each in self.scorers if each.score.table in tables]
