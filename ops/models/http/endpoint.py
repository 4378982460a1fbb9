"""Track the state of one endpoint: requests in flight, whether it answers, and when to retry it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from pairmill.ops.models.http.concurrency import Concurrency

# Seconds until a lost endpoint is retried; the pause doubles each time.
FIRST_PAUSE, MOST_PAUSE = 0.5, 30.0
# Seconds between checks whether an endpoint's requests have ended.
LOOK_SECONDS = 0.05


@dataclass
class Endpoint:
    """The state of one endpoint at ``url``.

    Attributes:
        url: Base URL.
        concurrency: Limit of concurrent requests.
        in_flight: Requests in flight.
        is_lost: Whether its last request failed to connect or broke off.
        is_held: Whether it gets no new requests for now.
        is_watched: Whether a probe decides when it is used again.
        resumes_at: Monotonic time before which it gets no request.
        server: Its Server header.
        limit_name: Its name of the token limit setting.
        n_answered: Answers so far.
        n_failed: Failures since the last answer.
    """

    url: str
    concurrency: Concurrency
    in_flight: int = 0
    is_lost: bool = False
    is_held: bool = False
    is_watched: bool = False
    resumes_at: float = 0.0
    server: str = ""
    limit_name: str = "max_tokens"
    n_answered: int = 0
    n_failed: int = 0
    _pause: float = field(default=FIRST_PAUSE)

    @asynccontextmanager
    async def alone(self, besides: int = 0) -> AsyncIterator[None]:
        """Run the body once at most ``besides`` requests are in flight; the endpoint gets no new requests meanwhile."""
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
        """Return whether it accepts another request now. A lost endpoint accepts a single one, as a trial."""
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
        """Record an answer. A watched endpoint stays lost until `is_back`."""
        self.is_lost, self._pause = self.is_lost and self.is_watched, FIRST_PAUSE
        self.concurrency.answered(now)

    def is_back(self) -> None:
        """Record that the endpoint answers as it did before it was lost."""
        self.is_lost, self._pause = False, FIRST_PAUSE

    def rest(self, now: float, seconds: float) -> None:
        """Pause an overloaded endpoint and halve its concurrency.

        The pause is the ``seconds`` that it asks for; if 0, a pause that doubles each time. During a pause, only extend
        it.
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
