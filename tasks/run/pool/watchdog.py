"""End the workers of a stage that finishes nothing for minutes, report them, and fail after several such stalls.

The time limits of single rows (`row_reports`) are hours, for the longest good row. The watchdog sees a stage as a
whole: if no worker finishes a row or an item for ``minutes``, the workers with rows in progress hang (a lock, a dead
mount, a driver). They are ended, and new processes run their items again.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from pairmill.catalog.terms.error import PairmillError

NAMED = 3  # keys of an item that a report names
Worker = TypeVar("Worker")


@dataclass
class Watchdog:
    """Watchdog of one stage."""

    minutes: float = 0.0  # the longest time without a finished row; 0 switches the watchdog off
    most: int = 3  # number of the stall at which the stage fails
    # called with a report of a stall, and with '' once a row is finished again
    show: Callable[[str], None] = lambda _: None
    reports: list[str] = field(default_factory=list)  # the reports so far, one a stall
    _since: float = field(default_factory=time.monotonic)
    _rows: int = 0
    _is_shown: bool = False
    _taken: int = 0

    def saw(self, rows: int) -> None:
        """Record progress: a finished item (``rows`` -1), or the number of finished rows of all unfinished items."""
        if rows == -1 or rows != self._rows:
            self._rows, self._since = max(rows, 0), time.monotonic()
            if self._is_shown:
                self._is_shown = False
                self.show("")

    def look(self, in_hand: Mapping[Worker, str], end: Callable[[Worker], object]) -> None:
        """Call ``end`` for each worker with rows in progress if nothing was finished for ``minutes``.

        ``in_hand`` describes each worker's rows in progress, '' for a worker without work. Time in which no worker has
        work does not count: a first row may come after a long wait for a machine. Raises PairmillError, with all
        reports, at stall number ``most``.
        """
        if not self.minutes:
            return
        hung = {worker: text for worker, text in in_hand.items() if text}
        if not hung:
            self._since = time.monotonic()
        if time.monotonic() - self._since < 60 * self.minutes:
            return
        self.reports.append(f"nothing was finished for {self.minutes:g} minutes: {'; '.join(hung.values())}")
        for worker in hung:
            end(worker)
        if len(self.reports) >= self.most:
            raise PairmillError(
                f"the stage stalled {len(self.reports)} times, and its workers were ended each time. "
                f"{'. '.join(self.reports)}. Their logs have the stacks of their threads. Mend what they wait for, and "
                "run again: what is finished is committed. For longer rows, raise compute.stall_minutes "
                "(--stall-minutes)."
            )
        self._since, self._is_shown = time.monotonic(), True
        self.show(f"{self.reports[-1]}; these workers were ended, and their items are done again")

    def take(self) -> tuple[str, ...]:
        """Return the reports since the last call, as notes of the run."""
        taken = tuple(self.reports[self._taken :])
        self._taken = len(self.reports)
        return taken
