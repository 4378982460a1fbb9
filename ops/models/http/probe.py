"""Check whether an endpoint still serves the same model, by its answers to questions about fixed images.

Each endpoint is probed periodically, and before it is used again after an outage.
"""

import asyncio
import difflib
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from pairmill.ops.models.generation import Generation
from pairmill.ops.models.http.chat_messages import Outcome, Refused, RetryableFailure, messages
from pairmill.ops.models.http.endpoint import Endpoint
from pairmill.ops.models.model_error import ModelError

if TYPE_CHECKING:
    from pairmill.ops.models.http.chat_connection import ChatConnection

PROMPT = "Describe the picture."
PROBE_TOKENS = 32
SIDE = 224
# Least agreement (0 to 1) between two lists of answers: the share of words in common, in order. Another batch size or
# card flips a near tie here and there; another model describes different things. Measured on the demo's captioner,
# whose weights were changed by normal noise relative to themselves: 0.87 to 1 at 0.4 % (bf16 rounding) and 1 %, 0.72 to
# 0.87 at 3 %, 0.44 to 0.67 at 20 % and more.
LEAST_AGREEMENT = 0.7
# Attempts of one question, and the longest pause between two, in seconds.
MOST_TRIES, MOST_PAUSE = 5, 30.0
# Subjects of the questions for a model that accepts no images.
IN_WORDS = ("a red disc", "a blue square", "a green triangle", "yellow stripes", "a chess board", "a rainbow")


@cache
def questions() -> tuple[tuple[bytes, bytes], ...]:
    """Return the probe's six questions, each as (message with an image, message in words only).

    Messages are JSON. The second is for a model that refuses images.
    """
    instead = (messages(None, f"Describe {thing} in one sentence.", "png") for thing in IN_WORDS)
    return tuple(zip((messages(picture, PROMPT, "png") for picture in pictures()), instead, strict=True))


def pictures() -> list[np.ndarray]:
    """Draw six images (SIDE, SIDE, 3) uint8 that any model describes differently: shapes, stripes, a gradient."""
    y, x = np.mgrid[:SIDE, :SIDE]
    disc = (x - SIDE / 2) ** 2 + (y - SIDE / 2) ** 2 < (SIDE / 3) ** 2
    square = (abs(x - SIDE / 2) < SIDE / 4) & (abs(y - SIDE / 2) < SIDE / 4)
    triangle = (y > SIDE / 5) & (y < 4 * SIDE / 5) & (abs(x - SIDE / 2) < (y - SIDE / 5) / 2)
    stripes = (x // 16) % 2 == 0
    board = (x // 28 + y // 28) % 2 == 0
    shapes = [
        (disc, (200, 30, 30), (255, 255, 255)),
        (square, (30, 60, 200), (240, 240, 200)),
        (triangle, (20, 140, 60), (20, 20, 20)),
        (stripes, (250, 210, 30), (60, 40, 90)),
        (board, (0, 0, 0), (255, 255, 255)),
    ]
    made = [np.where(mask[..., None], inside, outside).astype(np.uint8) for mask, inside, outside in shapes]
    gradient = np.stack([x * 255 // (SIDE - 1), y * 255 // (SIDE - 1), np.full_like(x, 128)], axis=-1)
    return [*made, gradient.astype(np.uint8)]


def agreement(answers: tuple[str, ...], known: tuple[str, ...]) -> float:
    """Return the mean share (0 to 1) of equal words, in order, between two tuples of answers to the same questions."""
    ratios = [
        difflib.SequenceMatcher(None, one.lower().split(), other.lower().split(), autojunk=False).ratio()
        for one, other in zip(answers, known, strict=True)
    ]
    return sum(ratios) / len(ratios)


def check(where: str, answers: tuple[str, ...], known: tuple[str, ...]) -> float:
    """Return the agreement (0 to 1) of ``answers`` with the ``known`` ones. Raises ModelError below LEAST_AGREEMENT."""
    if (found := agreement(answers, known)) < LEAST_AGREEMENT:
        first = next(n for n, (one, other) in enumerate(zip(answers, known, strict=True)) if one != other)
        raise ModelError(
            f"{where} is not the model that it was: its answers to the fixed pictures agree to {found:.2f} with the "
            f"first ones ({LEAST_AGREEMENT} is the least), '{answers[first][:80]}' instead of '{known[first][:80]}'. "
            "Serve that one again, or give this one another name: its texts are then made anew"
        )
    return found


class Watch:
    """Watch endpoints: compare their answers to the probe's questions with the ``known`` answers, if any.

    ``end`` is called with the error when an endpoint serves another model, ``is_back`` when an endpoint can be used
    again. ``second_try`` is the number of seconds before the first retry of a question.
    """

    def __init__(
        self,
        connection: "ChatConnection",
        known: tuple[str, ...],
        end: Callable[[ModelError], None],
        is_back: Callable[[], None],
        second_try: float,
    ) -> None:
        self._connection, self._known, self._end, self._is_back = connection, known, end, is_back
        self._second_try = second_try

    async def probe(self, endpoint: Endpoint) -> tuple[str, ...] | RetryableFailure:
        """Ask an endpoint the questions in turn; return the answers, or the failure of the first question without one.

        Raises ModelError if all questions are refused: the server is set up wrongly, and its model stays unknown.
        """
        answers, refused = [], []
        for question, in_words in questions():
            if isinstance(outcome := await self._put(endpoint, question), Refused):
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
        """Probe a lost, watched endpoint until it gives the known answers again; it gets no requests meanwhile."""
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
        """Probe an endpoint while it has no other request; not one that was lost meanwhile."""
        async with endpoint.alone():
            answers = () if endpoint.is_lost else await self.probe(endpoint)
        if answers and not isinstance(answers, RetryableFailure):
            check(self._connection.where(endpoint), answers, self._known)
            self._is_back()

    async def _put(self, endpoint: Endpoint, question: bytes) -> Outcome:
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
