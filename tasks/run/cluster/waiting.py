"""Report that a stage waits for a machine: log the start and the end, and show the current state."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

from pairmill.tasks.run.place.resources import Resources
from pairmill.tasks.run.pool.process import LOG


class Waiting:
    """The waits of one stage for a machine with the resources of one worker.

    ``show(text)`` is called with each new text, and with '' when a wait ends.
    """

    def __init__(self, asked: Resources, show: Callable[[str], None]) -> None:
        self._asked, self._show = asked, show
        self._shown, self._at, self._since = "", "", 0.0

    def go_on(self, launching: int) -> None:
        """Report that the stage waits, with the number of machines that an autoscaler is ``launching``."""
        if not self._shown:
            self._at, self._since = f"{datetime.now(UTC):%H:%M}", time.monotonic()
        text = text_of(self._asked, self._at, launching)
        if text == self._shown:
            return
        if not self._shown:
            LOG.warning(text)
        self._shown = text
        self._show(text)

    def end(self) -> None:
        """Report that the wait for a machine has ended, if the stage was waiting."""
        if self._shown:
            LOG.warning("waited %.0f s for a node", time.monotonic() - self._since)
            self._shown = ""
            self._show("")


def text_of(asked: Resources, at: str, launching: int) -> str:
    """Format the message: the resources, since when (``at``: hours and minutes, UTC), the machines being launched."""
    has = " and ".join(
        f"{n:g} {what}{'s' * (n > 1)}" for n, what in ((asked.cpus, "CPU"), (asked.gpus, "GPU")) if n or what == "CPU"
    )
    return f"waiting for a node with {has} since {at} UTC ({launching or 'none'} being launched)"
