"""Show the funnel of a run that goes on: what each rule has dropped so far, renewed before each wave of texts."""

from collections.abc import Callable
from typing import Any

from pairmill.catalog.cut.publication import image_funnel
from pairmill.catalog.pending.generated import without_unset_thresholds
from pairmill.flows.with_prefect.artifacts import create_funnel, unless_refused
from pairmill.flows.with_prefect.step_as_task import as_task
from pairmill.tasks.generate.waves import next_wave
from pairmill.tasks.run.session import Session


class GrowingFunnel:
    """Runs steps as Prefect tasks, and shows the funnel after each cut of `next_wave` that changed it.

    The cut is the wave's own, so that the funnel costs one query and a request; sentences are counted at the end only,
    which takes as long as publishing. A text that is not made yet counts as passing.
    """

    def __init__(self) -> None:
        self._shown: list[tuple] = []

    def __call__(self, step: Callable[[Session], Any], session: Session) -> Any:
        """Run a step; return its result."""
        result = as_task(step, session)
        if step is next_wave:
            self._show(session)
        return result

    def _show(self, session: Session) -> None:
        """Create the artifact's next version if a number has changed."""
        rows = [("image", *row) for row in image_funnel(session.lake, without_unset_thresholds(session.plan))]
        if rows != self._shown:
            with unless_refused("the funnel so far"):
                create_funnel(session.recipe.name, rows, f"What each rule of {session.recipe.name} dropped so far")
            self._shown = rows
