"""Track the state of one endpoint: its concurrent requests, whether it answers, when to retry it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

# Seconds until a lost endpoint is retried; the pause doubles each time.
FIRST_PAUSE, MOST_PAUSE = 0.5, 30.0
# Seconds between checks whether an endpoint's requests have ended.
LOOK_SECONDS = 0.05
# The first limit, and the factor of a higher one.
FIRST, STEP = 8, 1.5
# Keep a higher limit only for 5 % more throughput; below that, requests only wait longer.
WORTH = 1.05
# A measurement counts 4 answers a concurrent request. The first round's, sent under the previous limit, do not count.
ANSWERS_A_SLOT = 4
# After 20 measurements at the best limit, try the next one again: the server's load or capacity may have changed.
SETTLED = 20


@dataclass
class Concurrency:
    """Adaptive limit of concurrent requests to one endpoint: raised while throughput grows, halved on overload.

    The limit is at most ``most``. Times are seconds of any monotonic clock.
    """

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
        """Record a started request; a throughput measurement counts only if the limit was reached."""
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


@dataclass
class Endpoint:
    """Mutable state of one endpoint at the base URL ``url``."""

    url: str
    concurrency: Concurrency
    in_flight: int = 0
    is_lost: bool = False  # its last request failed to connect or broke off
    is_held: bool = False  # it gets no new requests for now
    is_watched: bool = False  # a probe decides when it is used again
    resumes_at: float = 0.0  # monotonic time before which it gets no request
    server: str = ""  # its Server header
    limit_name: str = "max_tokens"  # its name of the setting
    n_answered: int = 0
    n_failed: int = 0  # since the last answer
    _pause: float = field(default=FIRST_PAUSE)

    @asynccontextmanager
    async def alone(self, besides: int = 0) -> AsyncIterator[None]:
        """Run the `with` block once at most ``besides`` requests are in flight; admit no new ones meanwhile."""
        while self.is_held:
            await asyncio.sleep(LOOK_SECONDS)
        self.is_held = True
        try:
            while self.in_flight > besides:
                await asyncio.sleep(LOOK_SECONDS)
            yield
        finally:
            self.is_held = False

    def has_room(self, now: float) -> bool:
        """Return whether the endpoint may get another request now. A lost endpoint gets a single one, as a trial."""
        most = 1 if self.is_lost else self.concurrency.limit
        return not (self.is_held or self.is_watched) and now >= self.resumes_at and self.in_flight < most

    def begin(self) -> None:
        """Record a started request."""
        self.in_flight += 1
        self.concurrency.began(self.in_flight)

    def end(self) -> None:
        """Record a finished request, whatever its outcome."""
        self.in_flight -= 1

    def answered(self, now: float) -> None:
        """Record an answer at monotonic time ``now``. A watched endpoint stays lost until `is_back`."""
        self.is_lost, self._pause = self.is_lost and self.is_watched, FIRST_PAUSE
        self.concurrency.answered(now)

    def is_back(self) -> None:
        """Record that the endpoint answers as it did before it was lost."""
        self.is_lost, self._pause = False, FIRST_PAUSE

    def rest(self, now: float, seconds: float) -> None:
        """Pause an overloaded endpoint from monotonic time ``now``, and halve its concurrency.

        The pause is the ``seconds`` the endpoint asks for; if 0, it doubles each time. One under way is only extended.
        """
        if now < self.resumes_at:  # a request sent before the pause began
            self.resumes_at = max(self.resumes_at, now + seconds)
            return
        self.concurrency.slow_down()
        self.resumes_at = now + (seconds or self._longer())

    def lose(self, now: float) -> None:
        """Record a failed connection: halve the concurrency and pause, twice as long each time."""
        if not self.is_lost:
            self.is_lost = True
            self.concurrency.slow_down()
            self.resumes_at = now + self._longer()
        elif now >= self.resumes_at:
            self.resumes_at = now + self._longer()

    def _longer(self) -> float:
        """Return the next pause in seconds, and double it up to MOST_PAUSE."""
        pause, self._pause = self._pause, min(2 * self._pause, MOST_PAUSE)
        return pause
