"""Probe endpoints with fixed questions: periodically, and before a lost endpoint is used again."""

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
    """A watch over endpoints that compares their answers to the probe's questions with ``known`` answers.

    Args:
        connection: Sends the questions.
        known: Expected answers; () if there are none yet, then nothing is compared.
        end: Called with the error when an endpoint serves another model.
        is_back: Called when an endpoint can be used again.
        second_try: Seconds before the first retry of a question.
    """

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
        """Ask the questions one after the other; return the answers, or the failure of the first that has none.

        Raises ModelError if all questions are refused: the server is set up wrongly, and its model stays unknown.
        """
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
        """Probe each endpoint that is not lost every ``seconds``, until cancelled.

        A probe waits until the endpoint's requests have ended.
        """
        with self._ends_the_run():
            while True:
                await asyncio.sleep(seconds)
                for endpoint in endpoints:
                    if not endpoint.is_lost:
                        await self._ask_alone(endpoint)

    async def probe_until_back(self, endpoint: Endpoint) -> None:
        """Block a lost endpoint, which is marked as watched, until it gives the known answers again."""
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
        """Probe an endpoint while it has no other request."""
        async with endpoint.alone():
            answers = (
                () if endpoint.is_lost else await self.probe(endpoint)
            )  # lost meanwhile: `probe_until_back` probes it
        if answers and not isinstance(answers, RetryableFailure):
            check(self._connection.where(endpoint), answers, self._known)
            self._is_back()

    async def _put(self, endpoint: Endpoint, question: bytes) -> Generation | RetryableFailure | Refused:
        """Ask one question, with up to MOST_TRIES attempts."""
        for tries in range(1, MOST_TRIES):
            outcome = await self._connection.ask(endpoint, question, PROBE_TOKENS)
            if not isinstance(outcome, RetryableFailure) or outcome.kind in ("unreachable", "late"):
                return outcome
            await asyncio.sleep(max(pause(self._second_try, tries), min(outcome.after, MOST_PAUSE)))
        return await self._connection.ask(endpoint, question, PROBE_TOKENS)

    @contextmanager
    def _ends_the_run(self) -> Iterator[None]:
        """Pass a ModelError of the body on to ``end``."""
        try:
            yield
        except ModelError as error:
            self._end(error)


def pause(first: float, tries: int) -> float:
    """Return the seconds before the next retry: doubled each time up to MOST_PAUSE, with 50 % jitter.

    Jitter keeps requests that failed together from returning together.
    """
    return min(first * 2 ** (tries - 1), MOST_PAUSE) * random.uniform(0.5, 1.5)
