"""Adapt the number of concurrent requests to an endpoint: raise it while throughput grows, halve it on overload."""

from __future__ import annotations

from dataclasses import dataclass

FIRST, STEP = 8, 1.5
# Keep a higher limit only for 5 % more throughput; below that, requests only wait longer.
WORTH = 1.05
# A measurement counts 4 answers per concurrent request. Answers of the first round were sent under the previous limit
# and are not counted.
ANSWERS_A_SLOT = 4
# After 20 measurements at the best limit, try the next one again: the server's load or capacity may have changed.
SETTLED = 20


@dataclass
class Concurrency:
    """The limit of concurrent requests to one endpoint, at most ``most``. Times are seconds of any monotonic clock."""

    most: int
    limit: int = 0
    _before: float = 0.0  # answers a second at the previous limit
    _last: int = 0  # the previous limit
    _since: float = 0.0
    _answers: int = 0
    _was_full: bool = False
    _settled: int = 0

    def __post_init__(self) -> None:
        self.limit = min(FIRST, self.most)

    def began(self, in_flight: int) -> None:
        """Record a started request: a measurement counts only if the limit was reached."""
        self._was_full |= in_flight >= self.limit

    def answered(self, now: float) -> None:
        """Record an answer; at the end of a measurement, raise, keep or restore the limit of concurrent requests."""
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
        """Halve the limit of an overloaded endpoint. It can grow again after 5 measurements."""
        self.limit = max(1, self.limit // 2)
        self._before, self._last, self._settled = 0.0, self.limit, SETTLED // 4
        self._restart()

    def _restart(self) -> None:
        """Start a new measurement."""
        self._answers, self._was_full = 0, False
