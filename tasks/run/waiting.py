"""Say that a stage waits for a machine: in the run's log when that begins and ends, and meanwhile where it is shown."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

from pairmill.tasks.run.process import LOG
from pairmill.tasks.run.resources import Resources


class Waiting:
    """A stage's waits for a machine that has what one of its workers asks for.

    ``show(text)`` is called with each new text, and with '' when a wait is over.
    """

    def __init__(self, asked: Resources, show: Callable[[str], None]) -> None:
        self._asked, self._show = asked, show
        self._shown, self._at, self._since = "", "", 0.0

    def go_on(self, launching: int) -> None:
        """Say that the stage waits, for one of the ``launching`` machines that are being started, if any are."""
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
        """Say that the stage waits no longer, if it did."""
        if self._shown:
            LOG.warning("waited %.0f s for a node", time.monotonic() - self._since)
            self._shown = ""
            self._show("")


def text_of(asked: Resources, at: str, launching: int) -> str:
    """Write what is waited for, since ``at`` (hours and minutes, UTC)."""
    has = " and ".join(
        f"{n:g} {what}{'s' * (n > 1)}" for n, what in ((asked.cpus, "CPU"), (asked.gpus, "GPU")) if n or what == "CPU"
    )
    return f"waiting for a node with {has} since {at} UTC ({launching or 'none'} being launched)"
