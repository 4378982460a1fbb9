"""Skip a run whose inputs have not changed since its last completion.

A run reads its request (recipe, sources, settings), its inputs (`flows.run.run_inputs`) and the lake
(`catalog.write.finished`). If any of them is unknown, the run runs. The check only reads: it takes no lease, adds no
row to ``runs`` and no snapshot, and works on a read-only disk.

A run of which only settings of the cut differ from the last completed one skips the steps that do not read them.
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
from pairmill.catalog.write.finished import Finished, is_cached, recall, remember
from pairmill.flows.run.outcome import Outcome, outcome_in
from pairmill.flows.run.run_inputs import inputs_digest

if TYPE_CHECKING:  # a skipped run imports none of them
    from pairmill.catalog.cut.publication import Published
    from pairmill.catalog.lake.lake import Lake
    from pairmill.flows.run.settings import Compute
    from pairmill.tasks.run.session import Session


# Limits decide whether a run completes, and metrics who watches it; not what a completed run did.
LIMITS = {"max_hours", "max_gpu_hours", "max_rows", "max_gigabytes", "wait_minutes", "stall_minutes",
          "quarantine_alert", "metrics"}  # fmt: skip


# Settings that no step before the waves of texts reads, by section.
CUT_ALONE = {"balance": ("cap", "target", "fewer"), "association": ("max_uses",)}


@dataclass(frozen=True)
class RunRequest:
    """A run's request, to compare with completed runs.

    Attributes:
        recipe: The recipe.
        sources: The sources of the command line.
        asked: Digest of recipe, sources, settings and notes.
        inputs: Digest of the inputs before the run began, '' if unknown.
    """

    recipe: Recipe
    sources: tuple[str, ...]
    asked: str
    inputs: str


def ask(recipe: Recipe, sources: Sequence[str], compute: "Compute", notes: Sequence[str]) -> RunRequest:
    """Build the request of a `pairmill run`, to compare with completed runs; ``notes`` are those on its recipe."""
    asked = _digest([recipe.record(), list(sources), compute.model_dump(mode="json", exclude=LIMITS), list(notes)])
    return RunRequest(recipe, tuple(sources), asked, inputs_digest(recipe, sources))


def _digest(parts: list[Any]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def asked_of_pending(recipe: Recipe) -> str:
    """Return the request digest of `pairmill status`: would a run of the recipe, on any machine, find work?"""
    return _digest(["pending", recipe.record()])


def asked_of_measuring(recipe: Recipe) -> str:
    """Return the digest of the settings that the measuring steps read; these come before any text is generated."""
    record = recipe.record()
    for part, names in CUT_ALONE.items():
        record[part] = {name: value for name, value in record[part].items() if name not in names}
    return _digest(["measured", record, recipe.balance.is_on])


def notes_if_nothing_is_pending(lake: "Lake", recipe: Recipe, inputs: str) -> tuple[str, ...] | None:
    """Return the lasting notes of the recipe's last run if that run left no work; None if work may be pending.

    The sources are compared by their places, not by how they were written. Workers and machine are not compared.
    """
    found = recall(lake, asked_of_pending(recipe)) if inputs else None
    return found.notes if found and found.inputs == inputs else None


def answer(question: RunRequest, uri: str) -> tuple[Outcome, list[str]] | None:
    """Return the outcome and notes of the last completed run if nothing has changed since; None if the run must run.

    Errors give None: the run itself reports them.
    """
    if not question.inputs:
        return None
    try:
        if not is_cached(uri, question.asked):
            return None
        with create_or_open(uri, read_only=True) as lake:
            found = recall(lake, question.asked)
            if found is None or found.inputs != question.inputs:
                return None
            return outcome_in(lake, f"{found.dataset}@{found.version}"), list(found.notes)
    except (PairmillError, *OPENING_ERRORS):
        return None


def was_measured(question: RunRequest, uri: str) -> bool:
    """Return whether any completed run over the lake at ``uri`` had the same settings for measuring, and inputs."""
    from pairmill.catalog.write import measured  # imports Arrow, which a skipped run does not need

    with suppress(PairmillError, *OPENING_ERRORS):
        return bool(question.inputs) and measured.was_measured(
            uri, asked_of_measuring(question.recipe), question.inputs
        )
    return False


def take_over_measured(recipe: Recipe, inputs: str, session: "Session") -> bool:
    """Return whether the measuring steps can be skipped: the last completed run left them no work.

    If so, give the session the scorers and notes that they would give it. ``inputs`` is the digest of the run's inputs.
    """
    from pairmill.catalog.write.measured import recall_measured  # imports Arrow, which a skipped run does not need

    if not inputs:
        return False
    found = recall_measured(session.lake, asked_of_measuring(recipe), inputs)
    if found is None:
        return False
    for table, digest in found.scorers.items():
        session.plan = session.plan.with_scorer(table, digest)
    for note in found.notes:
        session.note(note)
    session.measured_notes = found.notes
    return True


def keep(question: RunRequest, session: "Session", published: "Published") -> None:
    """Record the result of a completed run, unless an input has changed since the run began."""
    from pairmill.catalog.write.measured import Measurement, remember_measured

    if question.inputs and question.inputs == inputs_digest(question.recipe, question.sources):
        dataset = (published.name, published.version, session.lasting_notes)
        found = [
            Finished(asked, question.inputs, *dataset) for asked in (question.asked, asked_of_pending(question.recipe))
        ]
        with suppress(PairmillError, *OPENING_ERRORS):  # the run is complete; without a record the next run just runs
            remember(session.writer, *found)
            measured = asked_of_measuring(question.recipe), question.inputs, session.plan.scorers
            remember_measured(session.writer, Measurement(*measured, session.measured_notes))
