"""Run a recipe in this process and record the result. If nothing has changed, return the last run's result instead."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pairmill.catalog.lake.opening import create_or_open
from pairmill.flows.run import nothing_to_do
from pairmill.flows.run.outcome import Outcome, outcome_in
from pairmill.flows.run.settings import Compute

if TYPE_CHECKING:  # torch, 3 s: a run with nothing to do does not import it
    from pairmill.flows.curate import RunStep
    from pairmill.tasks.run.session import Session


@dataclass(frozen=True)
class Curated:
    """Result of a run.

    Attributes:
        outcome: The published version with its funnel, sample pairs and report.
        notes: What the run found worth saying, a line each.
        is_new: Whether the run published a new version; False if its content equals the newest one's.
    """

    outcome: Outcome
    notes: list[str]
    is_new: bool


def last_result(request: nothing_to_do.RunRequest, lake: str) -> Curated | None:
    """Return the result of the last completed run if nothing that it read has changed since, else None."""
    found = nothing_to_do.cached_result(request, lake)
    return Curated(*found, is_new=False) if found else None


def curate_anew(
    request: nothing_to_do.RunRequest,
    lake: str,
    compute: Compute,
    notes: Sequence[str],
    run_step: "RunStep",
    begin: Callable[["Session"], None],
) -> Curated:
    """Curate, and record the run as the one to compare the next with.

    ``begin`` gets the session before its first step, to show its progress. The outcome is read, and its report written,
    after the lease is released, from the lake that is still open: opening it anew costs 0.4 CPU s.

    Raises:
        PairmillError: As `run_start.session`; each subclass names the remedy.
    """
    from pairmill.flows.curate import curate_steps
    from pairmill.flows.run.run_start import checked_run, session_on

    found: list[Any] = []  # the published dataset, for the callback

    def completed(ended: "Session") -> None:
        nothing_to_do.store(request, ended, found[0])

    uris, checked = checked_run(request.recipe, request.sources, compute, lake, request.retry)
    with create_or_open(lake) as opened:
        with session_on(opened, checked, compute, "curate", uris, completed) as session:
            session.notes += notes
            begin(session)
            found.append(curate_steps(session, run_step, request.retry))
        published = found[0]
        shown = outcome_in(opened, f"{published.name}@{published.version}")
    return Curated(shown, session.notes, published.is_new)
