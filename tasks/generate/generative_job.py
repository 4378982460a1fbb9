"""Query a generative model about the images of a work item; convert its answers and failures to rows."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms.controls import printable
from pairmill.catalog.write.commit import Usage
from pairmill.ops.fault import Fault
from pairmill.ops.image.decode import Decode
from pairmill.ops.models.generation import Answering, Generation, Stepwise, finish_name
from pairmill.ops.text.generation_status import generation_status, without_reasoning
from pairmill.tasks.run.items.model_job import Piece, one_by_one
from pairmill.tasks.run.items.partition import Part
from pairmill.tasks.run.items.payloads import CHUNK, batches
from pairmill.tasks.run.items.rows import quarantine
from pairmill.tasks.run.place.identity import decoder

# The most rows of an item: 20 to 50 s of a GPU at 10 to 25 texts a second, which is what a crash costs.
ITEM_ROWS = 512
NOTHING = Generation("", 0, "stop", 0.0)


def decoder_of_side(recipe: Recipe, side: int) -> Decode:
    """Return the decoder for a model whose images have the side ``side``, within the limits of the recipe's ingest."""
    return replace(decoder(recipe), side=side, mode="exact")


@dataclass(frozen=True)
class Answers:
    """Result of a batch: an answer per key, empty if the image or the model failed, and a fault for each failure."""

    found: dict[str, Generation]
    bad: list[Fault]


Running = tuple[Answers, list[str], Any]  # the answers so far, the keys of the others, their input or running batch


@dataclass(frozen=True)
class Queries:
    """How a generative model is queried with one prompt an image."""

    model: Answering
    decode: Decode | None  # the decoder of the images; None if the model sees no image, and none is read
    max_tokens: int  # the most tokens of an answer
    example: str  # a typical prompt, to which the batch size is fitted


@dataclass(frozen=True)
class GenerativeJob(ABC):
    """Model job: query a generative model with one prompt an image, and store the answers in ``table``.

    All these images decoded in an earlier step, but the bytes of an image that the lake only refers to may be gone.
    """

    stage: ClassVar[str]  # the step's name in quarantine rows
    table: ClassVar[str]  # the table to fill
    unit: ClassVar[str] = "pictures"
    item_rows: ClassVar[int] = ITEM_ROWS

    ask: Queries  # the queries of the model, with or without images
    prompt: str  # the prompt, or the template of the prompts
    scorer: str  # digest of the scorer of the rows
    model: str  # the recipe's name of the model, by which its resources are set

    @property
    def max_in_flight(self) -> int:
        """The most batches in flight if a server runs the model, else 0."""
        return self.ask.model.max_in_flight

    def __call__(self, item: WorkItem) -> Iterable[Part]:
        """Query the model about an item's images, batch after batch, in this thread; return the rows."""
        return one_by_one(self, item)

    def load(self) -> None:
        """Load the model."""
        self.ask.model.load()

    def pieces(self, item: WorkItem, rows: int = 0) -> Iterator[Piece]:
        """Yield batches of (image, prompt) of similar token counts, reading ``rows`` images at once (0: a default)."""
        self.load()
        ask, prompts = self.ask, self.prompts(item)
        model = ask.model.fitted(ask.example, ask.decode.side if ask.decode else 0, ask.max_tokens)
        portions: Iterable[tuple[list[str], list[Any]]]
        if ask.decode:
            portions = batches(item, rows or max(CHUNK, 8 * model.batch_size))
        else:
            portions = [([key], [None]) for key in prompts] if rows else [(list(prompts), [None] * len(prompts))]
        for shas, datas in portions:
            asked = [prompts[sha] for sha in shas]
            for batch in model.batches(asked, self._sizes(datas)):
                yield Piece(tuple(shas[n] for n in batch), [(datas[n], asked[n]) for n in batch])

    def _sizes(self, datas: list[bytes | Fault]) -> list[tuple[int, int] | None] | None:
        """Return the images' (height, width), a square for one that cannot be read; None for prompts without images."""
        if (decode := self.ask.decode) is None:
            return None
        square = (decode.side, decode.side)
        return [square if isinstance(data, Fault) else decode.shown_size(data) for data in datas]

    def prepare(self, piece: Piece) -> Running:
        """Decode a batch's images; return the model's input for the images that decode, faults for the others."""
        found: dict[str, Generation] = {}
        bad, good, asked = [], [], []
        for sha, (data, prompt) in zip(piece.keys, piece.data, strict=True):
            pixels = self.ask.decode(data) if self.ask.decode and isinstance(data, bytes) else data
            if isinstance(pixels, Fault):
                bad.append(pixels.about(sha))
                found[sha] = NOTHING
            else:
                good.append((pixels, prompt))
                asked.append(sha)
        ready = self.ask.model.prepare(*map(list, zip(*good, strict=True))) if good else None
        return Answers(found, bad), asked, ready

    def infer(self, ready: Running) -> Running:
        """Launch the model on a prepared batch, without waiting for the device; return the running batch."""
        answers, asked, given = ready
        return answers, asked, self.ask.model.infer(given, self.ask.max_tokens) if asked else None

    def stepwise(self, running: Running) -> Stepwise | None:
        """Return a launched batch if it is decoded step by step together with others, else None."""
        return running[-1] if isinstance(running[-1], Stepwise) else None

    def fetch(self, running: Running) -> Answers:
        """Wait for a batch's answers; return them without their reasoning, with a fault for each error."""
        answers, asked, given = running
        if not asked:
            return answers
        said = (replace(each, text=without_reasoning(each.text)) for each in self.ask.model.fetch(given))
        texts = dict(zip(asked, said, strict=True))
        faults = [Fault(sha, text.error, text.detail or "no text") for sha, text in texts.items() if text.error]
        return Answers(answers.found | texts, [*answers.bad, *faults])

    def parts(self, item: WorkItem, found: list[Answers]) -> list[Part]:
        """Convert the answers of an item's batches to rows of ``table``, in the order of keys, and quarantine rows."""
        answers = {sha: answer for piece in found for sha, answer in piece.found.items()}
        answers = {sha: answers[sha] for sha in item.keys if sha in answers}
        made = [Part(self.table, self.rows(item, answers), self.scorer, usage(answers.values()))]
        if bad := [fault for piece in found for fault in piece.bad]:
            made.append(Part("quarantine", quarantine(self.stage, bad)))
        return made

    def poisoned(self, item: WorkItem) -> list[Part]:
        """Make rows with empty texts for images that kill their worker, so that they are not pending again."""
        return [Part(self.table, self.rows(item, dict.fromkeys(item.keys, NOTHING)), self.scorer)]

    @abstractmethod
    def prompts(self, item: WorkItem) -> dict[str, str]:
        """Return the prompt of each of the item's images, by sha256."""

    @abstractmethod
    def rows(self, item: WorkItem, found: dict[str, Generation]) -> pa.Table:
        """Convert answers by sha256 to rows of ``table``.

        `poisoned` calls this method in the run's own process: it must be harmless for any input.
        """


@dataclass(frozen=True)
class RewriteCachedAnswers:
    """Job: convert cached answers (the input ``known``) to rows of ``job`` anew, without the model."""

    unit: ClassVar[str] = "pictures"

    job: GenerativeJob

    def __call__(self, item: WorkItem) -> list[Part]:
        """Return the rows of one item's cached answers."""
        known = dict(zip(item.keys, map(_restore_answer, item.inputs["known"]), strict=True))
        return [Part(self.job.table, self.job.rows(item, known), self.job.scorer)]


def _restore_answer(row: dict[str, Any]) -> Generation:
    """Restore an answer from a stored row. Without a finish reason the row's status shows whether it was cut off."""
    told = {name.removeprefix("synthetic_"): value for name, value in row.items()}
    finish = finish_name(told["finish_reason"] or ("length" if told["status"] == "cut_off" else "stop"))
    read, retries = told["prompt_tokens"] or 0, told["retries"] or 0
    text = without_reasoning(told["text"])
    return Generation(text, told["n_tokens"], finish, told["seconds"], prompt_tokens=read, retries=retries)


def usage(found: Iterable[Generation]) -> Usage:
    """Sum the tokens and retries of answers; the cost stays 0."""
    total = Usage()
    for each in found:
        counts = each.prompt_tokens, each.n_tokens, each.discarded_tokens, each.retries
        total += Usage(*counts, 0.0, each.unbelieved_prompt_tokens, each.unbelieved_tokens)
    return total


def generated_columns(
    found: list[Generation], text: str, status: str, instructions: Sequence[str] = ()
) -> dict[str, pa.Array]:
    """Return by name the columns that all tables of generated texts share; ``text`` and ``status`` name the first two.

    ``instructions`` are the prompt's own sentences: an answer that repeats them gets a status of its own.
    """
    statuses = [generation_status(each.text, each.finish, instructions) for each in found]
    return {
        text: pa.array([printable(each.text) for each in found], pa.string()),
        status: pa.array(statuses, pa.string()),
        "n_tokens": pa.array([each.n_tokens for each in found], pa.int32()),
        "seconds": pa.array([round(each.seconds, 4) for each in found], pa.float64()),
        "finish_reason": pa.array([each.finish for each in found], pa.string()),
        "prompt_tokens": pa.array([each.prompt_tokens for each in found], pa.int32()),
        "retries": pa.array([each.retries for each in found], pa.int32()),
    }
