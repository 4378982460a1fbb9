"""Ask a model about the pictures of a work item, and make rows of its answers, or of what became of the others."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms.controls import printable
from pairmill.catalog.write.commit import Usage
from pairmill.ops.fault import Fault
from pairmill.ops.image.decode import Decode
from pairmill.ops.models.generation import Answering, Generation
from pairmill.ops.text.generation_status import generation_status
from pairmill.tasks.run.identity import decoder
from pairmill.tasks.run.model_job import ModelJob, Piece
from pairmill.tasks.run.partition import Part
from pairmill.tasks.run.payloads import CHUNK, batches
from pairmill.tasks.run.rows import quarantine

NOTHING = Generation("", 0, "stop", 0.0)


def shown(recipe: Recipe, side: int) -> Decode:
    """Make the decoder for a model that sees pictures at ``side``, with the limits of the recipe's ingest."""
    return replace(decoder(recipe), side=side, mode="exact")


@dataclass(frozen=True)
class Answers:
    """What a piece came to: an answer a key, empty where the picture or the model gave none, and faults of these."""

    found: dict[str, Generation]
    bad: list[Fault]


@dataclass(frozen=True)
class ImageQueries:
    """Ask a model that sees, in halves; its batch size is found for prompts like ``example``.

    All pictures decoded before, or the cut would not keep them, but one that the lake only refers to may be gone.
    """

    model: Answering
    decode: Decode
    max_tokens: int
    example: str

    def load(self) -> Answering:
        """Load the model, and return it with the batch size that suits a prompt like the example."""
        self.model.load()
        return self.model.fitted(self.example, self.decode.side, self.max_tokens)

    def pieces(self, item: WorkItem, prompts: dict[str, str], rows: int) -> Iterator[Piece]:
        """Yield batches of pictures with prompts of like length, out of as many as are read together."""
        model = self.load()
        for shas, datas in batches(item, rows or max(CHUNK, 8 * model.batch_size)):
            asked = [prompts[sha] for sha in shas]
            for batch in model.batches(asked):
                yield Piece(tuple(shas[n] for n in batch), [(datas[n], asked[n]) for n in batch])

    def prepare(self, piece: Piece) -> tuple[Answers, list[str], Any]:
        """Decode the pictures, and make what the model takes of those that do."""
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
        """Have the model begin."""
        answers, asked, ready = prepared
        return answers, asked, self.model.infer(ready, self.max_tokens) if asked else None

    def fetch(self, running: tuple[Answers, list[str], Any]) -> Answers:
        """Wait for the answers."""
        answers, asked, given = running
        return _with(answers, asked, self.model.fetch(given)) if asked else answers


@dataclass(frozen=True)
class TextQueries:
    """Ask a model that works on text alone, in halves; no picture is read."""

    model: Answering
    max_tokens: int
    example: str

    def load(self) -> Answering:
        """Load the model, and return it with the batch size that suits a prompt like the example."""
        self.model.load()
        return self.model.fitted(self.example, 0, self.max_tokens)

    def pieces(self, item: WorkItem, prompts: dict[str, str], rows: int) -> Iterator[Piece]:
        """Yield batches of prompts of like length."""
        keys, texts = list(prompts), list(prompts.values())
        for batch in [[n] for n in range(len(keys))] if rows else self.load().batches(texts):
            yield Piece(tuple(keys[n] for n in batch), [prompts[keys[n]] for n in batch])

    def prepare(self, piece: Piece) -> tuple[list[str], Any]:
        """Make what the model takes of the prompts."""
        return list(piece.keys), self.model.prepare([None] * len(piece.keys), piece.data)

    def infer(self, prepared: tuple[list[str], Any]) -> tuple[list[str], Any]:
        """Have the model begin."""
        asked, ready = prepared
        return asked, self.model.infer(ready, self.max_tokens)

    def fetch(self, running: tuple[list[str], Any]) -> Answers:
        """Wait for the answers."""
        asked, given = running
        return _with(Answers({}, []), asked, self.model.fetch(given))


def _with(answers: Answers, asked: list[str], texts: list[Generation]) -> Answers:
    faults = [
        Fault(sha, text.error, text.detail or "no text") for sha, text in zip(asked, texts, strict=True) if text.error
    ]
    return Answers(answers.found | dict(zip(asked, texts, strict=True)), [*answers.bad, *faults])


def joined(item: WorkItem, pieces: list[Answers]) -> Answers:
    """Return the answers, in the order of the item's keys, and faults of all its pieces."""
    found = {sha: answer for piece in pieces for sha, answer in piece.found.items()}
    in_order = {sha: found[sha] for sha in item.keys if sha in found}
    return Answers(in_order, [fault for piece in pieces for fault in piece.bad])


class Generative(ModelJob, Protocol):
    """A model job that makes rows of ``table`` of what a generative model answers."""

    table: ClassVar[str]

    @property
    def scorer(self) -> str: ...

    def rows(self, item: WorkItem, found: dict[str, Generation]) -> pa.Table: ...


@dataclass(frozen=True)
class RewriteCachedAnswers:
    """Job: write what is ``known`` of its pictures as rows of ``job``, judged by its rules. No model is asked."""

    job: Generative

    def __call__(self, item: WorkItem) -> list[Part]:
        known = dict(zip(item.keys, map(_remembered, item.inputs["known"]), strict=True))
        return [Part(self.job.table, self.job.rows(item, known), self.job.scorer)]


def _remembered(row: dict[str, Any]) -> Generation:
    """Return the answer that a stored row holds; of one from before that was kept, its status tells why it ended."""
    told = {name.removeprefix("synthetic_"): value for name, value in row.items()}
    finish = told["finish_reason"] or ("length" if told["status"] == "cut_off" else "stop")
    prompt_tokens, retries = told["prompt_tokens"] or 0, told["retries"] or 0
    return Generation(
        told["text"], told["n_tokens"], finish, told["seconds"], prompt_tokens=prompt_tokens, retries=retries
    )


def empty_answers(table: str, item: WorkItem, text: str, status: str, scorer: str, **constants: list) -> list[Part]:
    """Make empty answers for pictures that kill the worker of their model, so that they are not asked again."""
    none = [NOTHING] * len(item.keys)
    rows = {"sha256": pa.array(item.keys, pa.string()), **constants, **generated_columns(none, text, status)}
    return [Part(table, pa.table(rows), scorer)]


def quarantine_parts(bad: list[Fault], step: str) -> list[Part]:
    """Make quarantine rows of the pictures without an answer (alone out of memory, say)."""
    names = [fault.item for fault in bad]
    return [Part("quarantine", quarantine(names, [""] * len(bad), step, bad))] if bad else []


def usage(found: Iterable[Generation]) -> Usage:
    """Return what these answers took."""
    return reduce(add, map(_taken, found), Usage())


def _taken(answer: Generation) -> Usage:
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
    """Return the columns that every generated row has, the text as ``text``, its status as ``status``.

    ``instructions`` is what the prompt itself says.
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
