"""Run a generative model over the images of a work item, or rewrite its cached answers without the model."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from pairmill.catalog.pending.item import WorkItem
from pairmill.ops.models.generation import Generation, Stepwise
from pairmill.tasks.generate.answers import Answers, ImageQueries, TextQueries, joined, quarantine_parts, usage
from pairmill.tasks.run.items.model_job import Piece, one_by_one
from pairmill.tasks.run.items.partition import Part

# The most rows of an item: 20 to 50 s of a GPU at 10 to 25 texts a second, which is what a crash costs.
ITEM_ROWS = 512


@dataclass(frozen=True)
class GenerativeJob(ABC):
    """Model job: query a generative model with one prompt an image, and store the answers in ``table``.

    Attributes:
        stage: The step that quarantine rows name.
        table: The table to fill.
        ask: The queries of the model, with or without images.
        prompt: The prompt, or the template of the prompts.
        scorer: Digest of the scorer of the rows.
        model: The recipe's name of the model, by which its resources are set.
    """

    stage: ClassVar[str]
    table: ClassVar[str]
    unit: ClassVar[str] = "pictures"
    item_rows: ClassVar[int] = ITEM_ROWS

    ask: ImageQueries | TextQueries
    prompt: str
    scorer: str
    model: str

    @property
    def max_in_flight(self) -> int:
        """The most pieces in flight where a server runs the model, else 0."""
        return self.ask.model.max_in_flight

    def __call__(self, item: WorkItem) -> Iterable[Part]:
        """Query the model about an item piece after piece, in this thread."""
        return one_by_one(self, item)

    def load(self) -> None:
        """Load the model."""
        self.ask.load()

    def pieces(self, item: WorkItem, rows: int = 0) -> Iterator[Piece]:
        """Yield the item's prompts in batches, with images if the model takes them."""
        return self.ask.pieces(item, self.prompts(item), rows)

    def prepare(self, piece: Piece) -> Any:
        """Decode the images, if the model takes them, and prepare the model's input."""
        return self.ask.prepare(piece)

    def infer(self, ready: Any) -> Any:
        """Launch the model on the prepared inputs, without waiting for the device."""
        return self.ask.infer(ready)

    def stepwise(self, running: Any) -> Stepwise | None:
        """Return the batch of a launched piece, if it is decoded beside others."""
        return self.ask.stepwise(running)

    def fetch(self, running: Any) -> Answers:
        """Wait for the answers."""
        return self.ask.fetch(running)

    def parts(self, item: WorkItem, found: list[Answers]) -> list[Part]:
        """Turn the answers of all pieces into rows of ``table``, and the failures into quarantine rows."""
        answers = joined(item, found)
        made = Part(self.table, self.rows(item, answers.found), self.scorer, usage(answers.found.values()))
        return [made, *quarantine_parts(answers.bad, self.stage)]

    @abstractmethod
    def prompts(self, item: WorkItem) -> dict[str, str]:
        """Return the prompt of each of the item's images, by sha256."""

    @abstractmethod
    def rows(self, item: WorkItem, found: dict[str, Generation]) -> pa.Table:
        """Turn answers by sha256 into rows of ``table``."""

    @abstractmethod
    def poisoned(self, item: WorkItem) -> list[Part]:
        """Make rows with empty texts for images that kill their worker, so that they are not pending again."""


@dataclass(frozen=True)
class RewriteCachedAnswers:
    """Job: rewrite cached answers (``known``) as rows of ``job``, judged by its current rules, without the model."""

    unit: ClassVar[str] = "pictures"

    job: GenerativeJob

    def __call__(self, item: WorkItem) -> list[Part]:
        """Write one item's cached answers."""
        known = dict(zip(item.keys, map(_remembered, item.inputs["known"]), strict=True))
        return [Part(self.job.table, self.job.rows(item, known), self.job.scorer)]


def _remembered(row: dict[str, Any]) -> Generation:
    """Restore an answer from a stored row.

    Rows from before finish reasons were stored have none: the status then tells whether the answer was cut off.
    """
    told = {name.removeprefix("synthetic_"): value for name, value in row.items()}
    finish = told["finish_reason"] or ("length" if told["status"] == "cut_off" else "stop")
    prompt_tokens, retries = told["prompt_tokens"] or 0, told["retries"] or 0
    return Generation(
        told["text"], told["n_tokens"], finish, told["seconds"], prompt_tokens=prompt_tokens, retries=retries
    )
