"""Run a recipe in this process: answer from the last completed run if nothing has changed, else curate and record."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pairmill.flows import nothing_to_do
from pairmill.flows.outcome import Outcome, outcome
from pairmill.flows.settings import Compute

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
    answered = nothing_to_do.answer(request, lake)
    return Curated(*answered, is_new=False) if answered else None


def curate_anew(
    request: nothing_to_do.RunRequest,
    lake: str,
    compute: Compute,
    notes: Sequence[str],
    run_step: "RunStep",
    begin: Callable[["Session"], None],
) -> Curated:
    """Curate, and record the run as the one to compare the next with.

    ``begin`` gets the session before its first step, to show its progress.

    Raises:
        PairmillError: As `run_start.session`; each subclass names the remedy.
    """
    from pairmill.flows.curate import curate_steps
    from pairmill.flows.run_start import session

    found: list[Any] = []  # the published dataset, for the callback
    with session(
        request.recipe,
        request.sources,
        lake,
        compute,
        completed=lambda ended: nothing_to_do.keep(request, ended, found[0]),
    ) as opened:
        opened.notes += notes
        begin(opened)
        found.append(curate_steps(opened, run_step))
    published = found[0]
    return Curated(outcome(lake, f"{published.name}@{published.version}"), opened.notes, published.is_new)
