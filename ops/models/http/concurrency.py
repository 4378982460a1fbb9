"""Fit how many requests an endpoint has at once: more as long as it answers more a second, fewer when it is busy."""

from __future__ import annotations

from dataclasses import dataclass

FIRST, STEP = 8, 1.5
# A step up is kept for this much more throughput; below that more requests only wait longer.
WORTH = 1.05
# A measure takes so many answers for each request at once; those of the first round began at the limit before, and are
# not counted.
ANSWERS_A_SLOT = 4
# After so many measures at a limit that was found, the next one is tried again: a server may have got company, or help.
SETTLED = 20


@dataclass
class Concurrency:
    """The number of requests that one endpoint has at once, at ``most`` so many. Times are seconds of any clock."""

    most: int
    limit: int = 0
    _before: float = 0.0  # answers a second at the limit below
    _last: int = 0  # the limit below
    _since: float = 0.0
    _answers: int = 0
    _was_full: bool = False
    _settled: int = 0

    def __post_init__(self) -> None:
        self.limit = min(FIRST, self.most)

    def began(self, in_flight: int) -> None:
        """Note that another request is under way: a limit that is never reached says nothing of what it is worth."""
        self._was_full |= in_flight >= self.limit

    def answered(self, now: float) -> None:
        """Note an answer; at the end of a measure, raise the limit, keep it, or go back to the one before."""
        self._answers += 1
        if self._answers <= self.limit:
            self._since = now
        if self._answers < (1 + ANSWERS_A_SLOT) * self.limit or now <= self._since:
            return
        rate, was_full = (self._answers - self.limit) / (now - self._since), self._was_full
        self._restart()
        if not was_full:
            return
        if self._settled:
            self._settled -= 1
        elif rate >= WORTH * self._before:
            self._before, self._last = rate, self.limit
            self.limit = min(self.most, max(self.limit + 1, round(self.limit * STEP)))
        else:
            self.limit, self._before, self._settled = self._last, 0.0, SETTLED

    def slow_down(self) -> None:
        """Halve the limit: the endpoint has too much to do. It grows again from there, after a while."""
        self.limit = max(1, self.limit // 2)
        self._before, self._last, self._settled = 0.0, self.limit, SETTLED // 4
        self._restart()

    def _restart(self) -> None:
        self._answers, self._was_full = 0, False
