"""Run a recipe in this process and record the result. If nothing has changed, return the last run's result instead.

A result depends on the request (recipe, sources, settings), the inputs (`flows.run.run_inputs`) and the lake
(`catalog.write.finished`). If any of them is unknown, the steps run. The check only reads: it takes no lease, adds no
row to ``runs`` and no snapshot, and works on a read-only disk.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pairmill.catalog.lake.opening import OPENING_ERRORS, create_or_open
from pairmill.catalog.queries.datasets import published as published_in
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write import finished
from pairmill.catalog.write.recorded_removals import unfinished_notice
from pairmill.flows.run.outcome import Outcome, outcome_in
from pairmill.flows.run.run_inputs import inputs_digest

if TYPE_CHECKING:  # torch, 3 s: a run with nothing to do imports none of them
    from pairmill.catalog.cut.publication import Published
    from pairmill.catalog.lake.lake import Lake
    from pairmill.flows.curate import RunStep
    from pairmill.flows.run.settings import Compute
    from pairmill.tasks.run.session import Session

# Limits decide whether a run completes; they do not change a completed run's result.
LIMITS = {"max_hours", "max_gpu_hours", "max_rows", "max_gigabytes", "wait_minutes", "stall_minutes",
          "quarantine_alert", "allow_empty"}  # fmt: skip
Begin = Callable[["Session"], None]


@dataclass(frozen=True)
class RunRequest:
    """What a run was asked for; an equal request of a completed run means that there is nothing to do."""

    recipe: Recipe
    sources: tuple[str, ...]  # the sources of the command line
    digest: str  # digest of recipe, sources, settings and notes
    inputs: str  # digest of the inputs before the run began, '' if unknown or if the run retries items
    retry: str = ""  # quarantine reason whose items are tried again, '' for none


@dataclass(frozen=True)
class Curated:
    """Result of a run."""

    outcome: Outcome  # the published version with its funnel, sample pairs and report
    notes: list[str]  # warnings and advice of the run, a line each
    is_new: bool  # whether the run published a new version; False if its content equals the newest one's


def request_run(
    recipe: Recipe, sources: Sequence[str], compute: "Compute", notes: Sequence[str], retry: str = ""
) -> RunRequest:
    """Build the request of a `pairmill run`, to compare with completed runs; ``notes`` are notes on its recipe."""
    asked = [recipe.record(), list(sources), compute.model_dump(mode="json", exclude=LIMITS), list(notes)]
    digest = _digest([*asked, "allow empty"] if compute.allow_empty else asked)
    inputs = "" if retry else inputs_digest(recipe, sources)
    return RunRequest(recipe, tuple(sources), digest, inputs, retry)


def _digest(parts: list[Any]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def pending_digest(recipe: Recipe) -> str:
    """Return the key, 64 hex digits, under which `pairmill run --dry-run` finds the recipe's last run."""
    return _digest(["pending", recipe.record()])


def measured_digest(recipe: Recipe) -> str:
    """Return a digest of the recipe without `balance.cap` and `max_uses`, on which no measuring step depends."""
    record = recipe.record()
    record["balance"]["cap"], record["association"]["max_uses"] = recipe.balance.cap is None, None
    return _digest(["measured", record])


def notes_if_nothing_is_pending(lake: "Lake", recipe: Recipe, inputs: str) -> tuple[str, ...] | None:
    """Return the notes of the recipe's last run that still hold, if that run left no work; None if work may be pending.

    The sources are compared by their places, not by how they were written. Workers and machine are not compared.
    """
    found = finished.load(lake, pending_digest(recipe)) if inputs else None
    return found.notes if found and found.inputs == inputs else None


def last_result(wanted: RunRequest, uri: str) -> Curated | None:
    """Return the result of the last completed run if nothing that it read has changed since, else None.

    Errors give None too: the run itself reports them.
    """
    if not wanted.inputs:
        return None
    try:
        if not finished.is_cached(uri, wanted.digest):
            return None
        with create_or_open(uri, read_only=True) as lake:
            found = finished.load(lake, wanted.digest)
            if found is None or found.inputs != wanted.inputs:
                return None
            notes = [*found.notes, *filter(None, [unfinished_notice(lake)])]
            return Curated(outcome_in(lake, f"{found.dataset}@{found.version}"), notes, is_new=False)
    except (PairmillError, *OPENING_ERRORS):
        return None


def curate_anew(
    request: RunRequest, lake: str, compute: "Compute", notes: Sequence[str], run_step: "RunStep", begin: Begin
) -> Curated:
    """Run all steps of curate, record the result for `last_result`, and return it.

    ``begin`` is called with the session before the first step, to connect its progress. The outcome is read, and its
    report written, after the lease is released, from the lake that is still open: opening it anew costs 0.4 CPU s.
    Raises PairmillError as `run_start.session`; each subclass names the remedy.
    """
    from pairmill.flows.curate import curate_steps
    from pairmill.flows.run.run_start import check_run, session_on

    found: list[Any] = []  # the published dataset, for the callback

    def completed(ended: "Session") -> None:
        store(request, ended, found[0])

    uris, checked = check_run(request.recipe, request.sources, compute, lake, request.retry)
    with create_or_open(lake) as opened:
        with session_on(opened, checked, compute, "curate", uris, completed=completed) as session:
            session.notes += notes
            found_before = finished.load(opened, measured_digest(request.recipe), has_lease=True)
            if request.inputs and found_before and found_before.inputs == request.inputs:
                # If that run published no version, the recall of the one that it found may be of another state.
                by_it = (each.recall for each in published_in(opened) if each.run_id == found_before.run_id)
                session.is_measured, session.recall = True, next(by_it, None)
            begin(session)
            found.append(curate_steps(session, run_step, request.retry))
        published = found[0]
        shown = outcome_in(opened, f"{published.name}@{published.version}")
    return Curated(shown, session.notes, published.is_new)


def store(wanted: RunRequest, session: "Session", published: "Published") -> None:
    """Record the result of a completed run for `last_result`, unless an input has changed since the run began."""
    if wanted.inputs and wanted.inputs == inputs_digest(wanted.recipe, wanted.sources):
        result = (wanted.inputs, published.name, published.version, session.lasting_notes)
        digests = (wanted.digest, pending_digest(wanted.recipe), measured_digest(wanted.recipe))
        with suppress(PairmillError, *OPENING_ERRORS):  # the run is complete; without a record the next run just runs
            finished.save(session.writer, *(finished.Finished(digest, *result) for digest in digests))
