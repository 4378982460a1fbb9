"""Define a job that runs a model in parts, so that batches are prepared on CPUs while the model runs another batch."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from pairmill.catalog.pending.item import WorkItem
from pairmill.tasks.run.items import row_reports
from pairmill.tasks.run.items.partition import Job, Part


@dataclass(frozen=True)
class Piece:
    """A batch of rows of one work item: their ``keys``, and the ``data`` read for them (bytes, texts)."""

    keys: tuple[str, ...]
    data: Any


@runtime_checkable
class ModelJob(Job, Protocol):
    """A job whose model inference is separate from reading, preprocessing and writing.

    ``pieces`` reads, ``prepare`` preprocesses on a CPU, only ``infer`` and ``fetch`` use the device
    (`ops/models/device/engine.py`), and ``parts`` turns all results into rows, in the order of the pieces. Called as a
    plain job, it runs one piece after another. A job whose model runs behind a server has an attribute
    ``max_in_flight``: the most pieces in flight at once. A job whose pieces are decoded beside each other has a method
    ``stepwise``, as the engine describes it. ``item_rows`` is the most rows of an item into which small shards are
    joined.
    """

    item_rows: ClassVar[int]

    @property
    def model(self) -> str:
        """The recipe's name of the model, by which its resources are set."""
        ...

    def load(self) -> None:
        """Load the model before any row is in progress, so that a death while loading blames no row."""

    def pieces(self, item: WorkItem, rows: int = 0) -> Iterator[Piece]:
        """Yield the item's rows in batches of at most ``rows`` rows; 0: the model's own batch size."""
        ...

    def prepare(self, piece: Piece) -> Any:
        """Preprocess a piece on a CPU; return the input of `infer`."""

    def infer(self, ready: Any) -> Any:
        """Launch the model on a prepared piece, without waiting; return the input of `fetch`."""

    def fetch(self, running: Any) -> Any:
        """Wait for the model's result of a launched piece, and return it."""

    def parts(self, item: WorkItem, found: list[Any]) -> Iterable[Part]:
        """Convert the results of all pieces of an item, in order, to rows of tables."""
        ...


def one_by_one(job: ModelJob, item: WorkItem, rows: int = 0) -> Iterable[Part]:
    """Run a model job on an item, piece after piece, in the calling thread; return its rows."""
    found = []
    for piece in job.pieces(item, rows):
        found.append(job.fetch(job.infer(job.prepare(piece))))
        row_reports.finish(len(piece.keys))
    return job.parts(item, found)
