"""Watch endpoints by the probe's questions: now and then, and before one that was lost is given anything again."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pairmill.ops.models.generation import Generation
from pairmill.ops.models.http.chat_answer import Refused, RetryableFailure
from pairmill.ops.models.http.endpoint import Endpoint
from pairmill.ops.models.http.probe import PROBE_TOKENS, check, questions
from pairmill.ops.models.model_error import ModelError

if TYPE_CHECKING:
    from pairmill.ops.models.http.chat_connection import ChatConnection

MOST_TRIES, MOST_PAUSE = 5, 30.0


class Watch:
    """A watch over endpoints whose answers to the probe's questions are ``known`` (() where they are not yet: then it
    only asks). ``end(error)`` is called where one has another model; ``is_back()`` where one may be used again."""

    def __init__(
        self,
        connection: ChatConnection,
        known: tuple[str, ...],
        end: Callable[[ModelError], None],
        is_back: Callable[[], None],
        second_try: float,
    ) -> None:
        self._connection, self._known, self._end, self._is_back = connection, known, end, is_back
        self._second_try = second_try

    async def probe(self, endpoint: Endpoint) -> tuple[str, ...] | RetryableFailure:
        """Ask the questions, one after the other; return the answers, or why there is none. Raises ModelError when all
        are refused: a server that is not set up for them says nothing of its model."""
        answers, refused = [], []
        for question, in_words in questions():
            outcome = await self._put(endpoint, question)
            if isinstance(outcome, Refused):
                outcome = await self._put(endpoint, in_words)
            if isinstance(outcome, RetryableFailure):
                return outcome
            answers.append(outcome.text if isinstance(outcome, Generation) else outcome.reason)
            refused += [outcome.said] if isinstance(outcome, Refused) else []
        if len(refused) == len(answers):
            raise ModelError(
                f"{self._connection.where(endpoint)} refuses the fixed pictures, and questions without any "
                f"({refused[-1]}); check the server, its chat template and the model's name"
            )
        return tuple(answers)

    async def keep(self, endpoints: Sequence[Endpoint], seconds: float) -> None:
        """Ask every endpoint each so many ``seconds``, when it has nothing else to do."""
        with self._ends_the_run():
            while True:
                await asyncio.sleep(seconds)
                for endpoint in endpoints:
                    if not endpoint.is_lost:
                        await self._ask_alone(endpoint)

    async def probe_until_back(self, endpoint: Endpoint) -> None:
        """Give a lost endpoint, which is marked as watched, nothing until it answers as it did."""
        with self._ends_the_run():
            async with endpoint.alone():
                while True:
                    await asyncio.sleep(max(0.01, endpoint.resumes_at - time.monotonic()))
                    answers = await self.probe(endpoint)
                    if not isinstance(answers, RetryableFailure):
                        check(self._connection.where(endpoint), answers, self._known)
                        endpoint.is_back()
                        break
                    endpoint.lose(time.monotonic())
        endpoint.is_watched = False
        self._is_back()

    async def _ask_alone(self, endpoint: Endpoint) -> None:
        async with endpoint.alone():
            answers = () if endpoint.is_lost else await self.probe(endpoint)  # lost meanwhile: it is brought back
        if answers and not isinstance(answers, RetryableFailure):
            check(self._connection.where(endpoint), answers, self._known)
            self._is_back()

    async def _put(self, endpoint: Endpoint, question: bytes) -> Generation | RetryableFailure | Refused:
        """Put one question, again where that may help."""
        for tries in range(1, MOST_TRIES):
            outcome = await self._connection.ask(endpoint, question, PROBE_TOKENS)
            if not isinstance(outcome, RetryableFailure) or outcome.kind in ("unreachable", "late"):
                return outcome
            await asyncio.sleep(max(pause(self._second_try, tries), min(outcome.after, MOST_PAUSE)))
        return await self._connection.ask(endpoint, question, PROBE_TOKENS)

    @contextmanager
    def _ends_the_run(self) -> Iterator[None]:
        try:
            yield
        except ModelError as error:
            self._end(error)


def pause(first: float, tries: int) -> float:
    """Return the seconds before another try: doubled each time, and spread by a half, so that requests that failed
    together do not come back together."""
    return min(first * 2 ** (tries - 1), MOST_PAUSE) * random.uniform(0.5, 1.5)
