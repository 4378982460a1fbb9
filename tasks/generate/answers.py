"""Query a generative model about the images of a work item; turn its answers and failures into rows."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import pyarrow as pa

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms.controls import printable
from pairmill.catalog.write.commit import Usage
from pairmill.ops.fault import Fault
from pairmill.ops.image.decode import Decode
from pairmill.ops.models.generation import Answering, Generation, Stepwise
from pairmill.ops.text.generation_status import generation_status
from pairmill.tasks.run.items.model_job import Piece
from pairmill.tasks.run.items.partition import Part
from pairmill.tasks.run.items.payloads import CHUNK, batches
from pairmill.tasks.run.items.rows import quarantine
from pairmill.tasks.run.place.identity import decoder

NOTHING = Generation("", 0, "stop", 0.0)


def shown(recipe: Recipe, side: int) -> Decode:
    """Return the decoder for a model whose images have the side ``side``, within the limits of the recipe's ingest."""
    return replace(decoder(recipe), side=side, mode="exact")


@dataclass(frozen=True)
class Answers:
    """Result of a batch: an answer per key, empty where image or model failed, and the faults of those."""

    found: dict[str, Generation]
    bad: list[Fault]


@dataclass(frozen=True)
class ImageQueries:
    """Query a vision-language model about images: decode and prepare on CPUs, infer and fetch on the device.

    The batch size is fitted to prompts like ``example``. All images have decoded before, else the cut would have
    dropped them, but the bytes of one that the lake only refers to may be gone.
    """

    model: Answering
    decode: Decode
    max_tokens: int
    example: str

    def load(self) -> Answering:
        """Load the model; return it with the batch size fitted to a prompt like the example."""
        self.model.load()
        return self.model.fitted(self.example, self.decode.side, self.max_tokens)

    def pieces(self, item: WorkItem, prompts: dict[str, str], rows: int) -> Iterator[Piece]:
        """Yield batches of the images that are read together, grouped by the tokens of image and prompt."""
        model = self.load()
        for shas, datas in batches(item, rows or max(CHUNK, 8 * model.batch_size)):
            asked = [prompts[sha] for sha in shas]
            sizes = [None if isinstance(data, Fault) else self.decode.shown_size(data) for data in datas]
            square = (self.decode.side, self.decode.side)  # of an image that cannot be read
            for batch in model.batches(asked, [size or square for size in sizes]):
                yield Piece(tuple(shas[n] for n in batch), [(datas[n], asked[n]) for n in batch])

    def prepare(self, piece: Piece) -> tuple[Answers, list[str], Any]:
        """Decode the images and prepare the model's input from those that decode."""
        found: dict[str, Generation] = {}
        bad, good, asked = [], [], []
        for sha, (data, prompt) in zip(piece.keys, piece.data, strict=True):
            pixels = data if isinstance(data, Fault) else self.decode(data)
            if isinstance(pixels, Fault):
                bad.append(pixels.about(sha))
                found[sha] = NOTHING
            else:
                good.append((pixels, prompt))
                asked.append(sha)
        ready = self.model.prepare(*map(list, zip(*good, strict=True))) if good else None
        return Answers(found, bad), asked, ready

    def infer(self, prepared: tuple[Answers, list[str], Any]) -> tuple[Answers, list[str], Any]:
        """Launch the model on the prepared inputs, without waiting for the device."""
        answers, asked, ready = prepared
        return answers, asked, self.model.infer(ready, self.max_tokens) if asked else None

    def stepwise(self, running: tuple[Answers, list[str], Any]) -> Stepwise | None:
        """Return the batch of a launched piece, if it is decoded beside others."""
        return running[-1] if isinstance(running[-1], Stepwise) else None

    def fetch(self, running: tuple[Answers, list[str], Any]) -> Answers:
        """Wait for the answers."""
        answers, asked, given = running
        return _with(answers, asked, self.model.fetch(given)) if asked else answers


@dataclass(frozen=True)
class TextQueries:
    """Query a text-only language model: prepare on CPUs, infer and fetch on the device. No image is read."""

    model: Answering
    max_tokens: int
    example: str

    def load(self) -> Answering:
        """Load the model; return it with the batch size fitted to a prompt like the example."""
        self.model.load()
        return self.model.fitted(self.example, 0, self.max_tokens)

    def pieces(self, item: WorkItem, prompts: dict[str, str], rows: int) -> Iterator[Piece]:
        """Yield batches of prompts of similar lengths."""
        keys, texts = list(prompts), list(prompts.values())
        for batch in [[n] for n in range(len(keys))] if rows else self.load().batches(texts):
            yield Piece(tuple(keys[n] for n in batch), [prompts[keys[n]] for n in batch])

    def prepare(self, piece: Piece) -> tuple[list[str], Any]:
        """Tokenize the prompts of a piece; return their keys and the input tensors."""
        return list(piece.keys), self.model.prepare([None] * len(piece.keys), piece.data)

    def infer(self, prepared: tuple[list[str], Any]) -> tuple[list[str], Any]:
        """Launch the model on the prepared inputs, without waiting for the device."""
        asked, ready = prepared
        return asked, self.model.infer(ready, self.max_tokens)

    def stepwise(self, running: tuple[list[str], Any]) -> Stepwise | None:
        """Return the batch of a launched piece, if it is decoded beside others."""
        return running[-1] if isinstance(running[-1], Stepwise) else None

    def fetch(self, running: tuple[list[str], Any]) -> Answers:
        """Wait for the answers."""
        asked, given = running
        return _with(Answers({}, []), asked, self.model.fetch(given))


def _with(answers: Answers, asked: list[str], texts: list[Generation]) -> Answers:
    """Add the model's answers, and a fault for each answer with an error."""
    faults = [
        Fault(sha, text.error, text.detail or "no text") for sha, text in zip(asked, texts, strict=True) if text.error
    ]
    return Answers(answers.found | dict(zip(asked, texts, strict=True)), [*answers.bad, *faults])


def joined(item: WorkItem, pieces: list[Answers]) -> Answers:
    """Merge the answers of all pieces, in the order of the item's keys."""
    found = {sha: answer for piece in pieces for sha, answer in piece.found.items()}
    in_order = {sha: found[sha] for sha in item.keys if sha in found}
    return Answers(in_order, [fault for piece in pieces for fault in piece.bad])


def empty_answers(table: str, item: WorkItem, text: str, status: str, scorer: str, **constants: list) -> list[Part]:
    """Make empty answers for images that kill the model's worker, so that they are not pending again."""
    none = [NOTHING] * len(item.keys)
    rows = {"sha256": pa.array(item.keys, pa.string()), **constants, **generated_columns(none, text, status)}
    return [Part(table, pa.table(rows), scorer)]


def quarantine_parts(bad: list[Fault], step: str) -> list[Part]:
    """Make quarantine rows of images without an answer (one that runs out of memory even alone, for example)."""
    names = [fault.item for fault in bad]
    return [Part("quarantine", quarantine(names, [""] * len(bad), step, bad))] if bad else []


def usage(found: Iterable[Generation]) -> Usage:
    """Add up the tokens and retries of these answers."""
    return reduce(add, map(_taken, found), Usage())


def _taken(answer: Generation) -> Usage:
    """Return the usage of one answer."""
    return Usage(
        answer.prompt_tokens,
        answer.n_tokens,
        answer.discarded_tokens,
        answer.retries,
        unbelieved_prompt_tokens=answer.unbelieved_prompt_tokens,
        unbelieved_tokens=answer.unbelieved_tokens,
    )


def generated_columns(
    found: list[Generation], text: str, status: str, instructions: Sequence[str] = ()
) -> dict[str, pa.Array]:
    """Return the columns that all tables of generated texts share; ``text`` and ``status`` name the first two.

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
