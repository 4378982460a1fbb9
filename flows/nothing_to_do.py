"""Find that a run has nothing to do without running: nothing that it reads has changed since it last completed.

What it reads is its question (recipe, sources, settings), its inputs (`flows.run_inputs`) and the lake
(`catalog.write.finished`). Where any of them cannot be told, the run runs. An answer only reads: it takes no lease and
adds no row to ``runs``, so that it works on a disk that is read-only, and moves no snapshot.
"""

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pairmill.catalog.lake.opening import OPENING_ERRORS, create_or_open
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write.finished import Finished, recall, remember
from pairmill.flows.outcome import Outcome, outcome_in
from pairmill.flows.run_inputs import inputs_digest

if TYPE_CHECKING:  # the short way needs none of them
    from pairmill.catalog.cut.publication import Published
    from pairmill.catalog.lake.lake import Lake
    from pairmill.flows.settings import Compute
    from pairmill.tasks.run.session import Session


@dataclass(frozen=True)
class RunRequest:
    """What a run is to do: digests of what it was ``asked``, and of its ``inputs`` before it began, '' for unknown."""

    recipe: Recipe
    sources: tuple[str, ...]
    asked: str
    inputs: str


def ask(recipe: Recipe, sources: Sequence[str], compute: "Compute", notes: Sequence[str]) -> RunRequest:
    """Put the question that `pairmill run` is; ``notes`` are those on its recipe."""
    asked = _digest([recipe.record(), list(sources), compute.model_dump(mode="json"), list(notes)])
    return RunRequest(recipe, tuple(sources), asked, inputs_digest(recipe, sources))


def _digest(parts: list[Any]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def asked_of_pending(recipe: Recipe) -> str:
    """What `pairmill status` asks: whether a run of the recipe, on whatever machines, would find work."""
    return _digest(["pending", recipe.record()])


def notes_if_nothing_is_pending(lake: "Lake", recipe: Recipe, sources: Sequence[str]) -> tuple[str, ...] | None:
    """Return the notes that last of the recipe's last run if it left nothing to do; None if something may be pending.

    Only the sources' places count, not how they are named, nor where and with what workers the run was.
    """
    found = recall(lake, asked_of_pending(recipe))
    return found.notes if found and found.inputs and found.inputs == inputs_digest(recipe, sources) else None


def answer(question: RunRequest, uri: str) -> tuple[Outcome, list[str]] | None:
    """Return the outcome and the notes of the run in the lake at ``uri`` if it has nothing to do; None if it may have.

    Whatever is wrong is for the run to say, and to mend.
    """
    if not question.inputs:
        return None
    try:
        with create_or_open(uri, read_only=True) as lake:
            found = recall(lake, question.asked)
            if found is None or found.inputs != question.inputs:
                return None
            return outcome_in(lake, f"{found.dataset}@{found.version}"), list(found.notes)
    except (PairmillError, *OPENING_ERRORS):
        return None


def keep(question: RunRequest, session: "Session", published: "Published") -> None:
    """Remember what a completed run came to, unless something that it reads has changed since it began."""
    if question.inputs and question.inputs == inputs_digest(question.recipe, question.sources):
        dataset = (published.name, published.version, session.lasting_notes)
        found = [
            Finished(asked, question.inputs, *dataset) for asked in (question.asked, asked_of_pending(question.recipe))
        ]
        with suppress(PairmillError, *OPENING_ERRORS):  # the run is complete; the next one runs
            remember(session.writer, *found)
