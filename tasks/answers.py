"""Ask a model about the pictures of a work item, and make rows of its answers, or of what became of the others."""

from dataclasses import replace

import numpy as np
import pyarrow as pa

from catalog.pending.item import WorkItem
from catalog.recipe.recipe import Recipe
from catalog.terms.controls import printable
from ops.fault import Fault
from ops.image.decode import Decode
from ops.models.generation import Generation
from ops.models.language_model import LanguageModel
from ops.models.vlm import VisionLanguageModel
from ops.text.generation_status import generation_status
from tasks.run.identity import decoder
from tasks.run.payloads import payloads
from tasks.run.rows import quarantine
from tasks.run.stage import Part

NOTHING = Generation("", 0, True, 0.0)


def shown(recipe: Recipe, side: int) -> Decode:
    """Make the decoder for a model that sees pictures at ``side``, with the limits of the recipe's ingest."""
    return replace(decoder(recipe), side=side, mode="exact")


def answers(
    item: WorkItem, prompts: dict[str, str], decode: Decode, model: VisionLanguageModel, max_tokens: int
) -> tuple[dict[str, Generation], list[Fault]]:
    """Ask the model about each picture; return its answers, and faults of those without one: their answers are empty.

    All pictures decoded before, or the cut would not keep them; one that the lake only refers to may be gone since.
    """
    found: dict[str, Generation] = {}
    bad: list[Fault] = []
    for shas, datas in payloads(item):
        pictures: list[np.ndarray | None] = []
        asked: list[str] = []
        for sha, data in zip(shas, datas, strict=True):
            pixels = data if isinstance(data, Fault) else decode(data)
            if isinstance(pixels, Fault):
                bad.append(pixels.about(sha))
                found[sha] = NOTHING
            else:
                pictures.append(pixels)
                asked.append(sha)
        texts = model.generate(pictures, [prompts[sha] for sha in asked], max_tokens)
        found |= zip(asked, texts, strict=True)
        bad += _faults(asked, texts)
    return found, bad


def text_answers(
    prompts: dict[str, str], model: LanguageModel, max_tokens: int
) -> tuple[dict[str, Generation], list[Fault]]:
    """Ask the model for each picture's prompt, its bytes unread; return its answers, and faults of empty ones."""
    texts = model.generate(list(prompts.values()), max_tokens)
    return dict(zip(prompts, texts, strict=True)), _faults(list(prompts), texts)


def _faults(asked: list[str], texts: list[Generation]) -> list[Fault]:
    return [Fault(sha, text.error, "no text") for sha, text in zip(asked, texts, strict=True) if text.error]


def empty_answers(table: str, item: WorkItem, text: str, status: str, scorer: str, **constants: list) -> list[Part]:
    """Make empty answers for pictures that kill the worker of their model, so that they are not asked again."""
    none = [NOTHING] * len(item.keys)
    rows = {"sha256": pa.array(item.keys, pa.string()), **constants, **generated_columns(none, text, status)}
    return [Part(table, pa.table(rows), scorer)]


def quarantine_parts(bad: list[Fault], step: str) -> list[Part]:
    """Make quarantine rows of the pictures without an answer (alone out of memory, say)."""
    names = [fault.item for fault in bad]
    return [Part("quarantine", quarantine(names, [""] * len(bad), step, bad))] if bad else []


def generated_columns(found: list[Generation], text: str, status: str) -> dict[str, pa.Array]:
    """Return the columns that every generated row has, the text as ``text``, its status as ``status``."""
    return {
        text: pa.array([printable(each.text) for each in found], pa.string()),
        status: pa.array([generation_status(each.text, each.finished) for each in found], pa.string()),
        "n_tokens": pa.array([each.n_tokens for each in found], pa.int32()),
        "seconds": pa.array([round(each.seconds, 4) for each in found], pa.float64()),
    }
