"""Measure the rate of a captioning run: tokens a second, seconds an image, model utilisation, time left."""

import time
from collections.abc import Callable

from pairmill.catalog.queries.captioned import Spent, count_uncaptioned, spent
from pairmill.flows.run.progress_text import duration
from pairmill.tasks.run.place.progress import Progress, ShowProgress
from pairmill.tasks.run.session import Session

SHARE = 0.02  # maximum share of a run's time spent on these queries

Say = Callable[[str, float], None]


class CaptionRate:
    """A session's ``progress`` callback that forwards each call to ``then`` and reports the rate of committed captions.

    It calls ``say`` with the report and the share of images done, 0 to 1: at most every ``every`` seconds and at the
    end of a step, for steps of the first captioner only.
    """

    def __init__(self, session: Session, then: ShowProgress, say: Say, every: float) -> None:
        self._session, self._then, self._say, self._every = session, then, say, every
        self._asked, self._took = 0.0, 0.0
        self._begun: tuple[float, Spent, int] | None = None  # time, committed work and pending images at the start

    def __call__(self, progress: Progress) -> None:
        """Forward a step's progress to ``then``, and report the rate if it is due."""
        self._then(progress)
        if progress.step != f"caption {self._session.recipe.captioners[0].name}":
            return
        if progress.is_begin or self._begun is None:
            self._begun = (time.monotonic(), self._spent(), count_uncaptioned(self._session.lake, self._session.plan))
        elif progress.is_end or time.monotonic() - self._asked >= max(self._every, self._took / SHARE):
            self._asked = time.monotonic()
            now = self._spent()
            self._took = time.monotonic() - self._asked
            began, before, pending = self._begun
            if now.pictures > before.pictures:
                self._say(*format_rate(before, now, pending, time.monotonic() - began))

    def _spent(self) -> Spent:
        """Read the images, tokens and seconds that this run's captioner has committed."""
        plan = self._session.plan
        return spent(self._session.lake, self._session.writer.run_id, plan.scorer(plan.first_captions))


def format_rate(before: Spent, now: Spent, pending: int, wall: float) -> tuple[str, float]:
    """Format the rate of captions committed between ``before`` and ``now``; return it with the share done, 0 to 1.

    ``pending`` is the number of images at the start, ``wall`` the seconds since. Utilisation is the model's own seconds
    divided by ``wall``: over 100 % if several replicas work at once.
    """
    pictures, tokens = now.pictures - before.pictures, now.tokens - before.tokens
    each = wall / pictures
    left = max(0, pending - pictures) * each
    text = (
        f"{pictures:,} of {pending:,} pictures, {tokens / wall:,.0f} tokens/s, {each:.3g} s a picture, model busy "
        f"{100 * (now.seconds - before.seconds) / wall:.0f} %" + (f", {duration(left)} left" if left else "")
    )
    return text, min(1.0, pictures / max(1, pending))
