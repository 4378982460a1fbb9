"""Define the parts of a job that runs a model, so that one batch is prepared while the model has another."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from pairmill.catalog.pending.item import WorkItem
from pairmill.tasks.run.partition import Job, Part


@dataclass(frozen=True)
class Piece:
    """A batch of one work item: its ``keys``, and what is read of them (bytes, texts); never of two items."""

    keys: tuple[str, ...]
    data: Any


@runtime_checkable
class ModelJob(Job, Protocol):
    """A job in halves: ``pieces`` reads, ``prepare`` works on a CPU, ``infer`` and ``fetch`` alone talk to the device
    (`ops.models.device.engine.Halves`), ``parts`` makes rows of all that was found, in the order of the pieces.

    ``model`` is the recipe's name of it, by which its resources are set. ``load`` loads it before any row is in hand: a
    process that dies of that blames none. ``rows`` is how many rows a piece has at most; 0 means the model's own
    batch size. ``item_rows`` is up to how many rows small shards are joined into one item (`tasks.run.small_shards`).
    Called as a job, it does one piece after the other. A job whose model runs max_in_flight, behind a server, has an
    attribute ``max_in_flight``: how many of its pieces may be under way at once.
    """

    item_rows: ClassVar[int]

    @property
    def model(self) -> str: ...
    def load(self) -> None: ...
    def pieces(self, item: WorkItem, rows: int = 0) -> Iterator[Piece]: ...
    def prepare(self, piece: Piece) -> Any: ...
    def infer(self, ready: Any) -> Any: ...
    def fetch(self, running: Any) -> Any: ...
    def parts(self, item: WorkItem, found: list[Any]) -> Iterable[Part]: ...


def one_by_one(job: ModelJob, item: WorkItem, rows: int = 0) -> Iterable[Part]:
    """Run the job piece after piece, in this thread."""
    return job.parts(item, [job.fetch(job.infer(job.prepare(piece))) for piece in job.pieces(item, rows)])
