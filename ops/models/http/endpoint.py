"""Keep the state of one endpoint: what it has under way, whether it answers, and when it is to be tried again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from pairmill.ops.models.http.concurrency import Concurrency

# A lost endpoint is tried again after this many seconds, twice as long each time.
FIRST_PAUSE, MOST_PAUSE = 0.5, 30.0
# How often it is looked whether an endpoint has done what it had.
LOOK_SECONDS = 0.05


@dataclass
class Endpoint:
    """One endpoint at ``url``. ``is_lost``: it did not answer last; ``is_held``: it gets nothing new for now;
    ``is_watched``: it is being brought back. ``limit_name`` is how it calls the token limit; ``n_answered`` counts its
    texts, ``n_failed`` its failures since the last one."""

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
        """Hold it, so that it gets nothing new, and wait until no more than ``besides`` requests are under way."""
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
        """Whether it may have another request; one that was lost, a single one, to see."""
        most = 1 if self.is_lost else self.concurrency.limit
        return not (self.is_held or self.is_watched) and now >= self.resumes_at and self.in_flight < most

    def begin(self) -> None:
        self.in_flight += 1
        self.concurrency.began(self.in_flight)

    def end(self) -> None:
        self.in_flight -= 1

    def answered(self, now: float) -> None:
        """Note that it did its work. One that is watched is back when the watch says so."""
        self.is_lost, self._pause = self.is_lost and self.is_watched, FIRST_PAUSE
        self.concurrency.answered(now)

    def is_back(self) -> None:
        """Note that it answers as it did before it was lost."""
        self.is_lost, self._pause = False, FIRST_PAUSE

    def rest(self, now: float, seconds: float) -> None:
        """Leave it alone for so long as it asked for, or for a pause that doubles; then ask less of it at once."""
        if now < self.resumes_at:  # an answer to what was sent before it asked
            self.resumes_at = max(self.resumes_at, now + seconds)
            return
        self.concurrency.slow_down()
        self.resumes_at = now + (seconds or self._longer())

    def lose(self, now: float) -> None:
        """Note that nobody answered there."""
        if not self.is_lost:
            self.is_lost = True
            self.concurrency.slow_down()
            self.resumes_at = now + self._longer()
        elif now >= self.resumes_at:
            self.resumes_at = now + self._longer()

    def _longer(self) -> float:
        pause, self._pause = self._pause, min(2 * self._pause, MOST_PAUSE)
        return pause
