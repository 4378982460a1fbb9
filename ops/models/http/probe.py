"""Check by questions about fixed images whether an endpoint still serves the same model."""

from __future__ import annotations

import difflib
from functools import cache

import numpy as np

from pairmill.ops.models.http.chat_request import messages
from pairmill.ops.models.model_error import ModelError

PROMPT = "Describe the picture."
PROBE_TOKENS = 32
SIDE = 224
# Least agreement (0 to 1) between two lists of answers: the share of words in common, in order. Another batch size or
# card flips a near tie here and there; another model describes different things. Measured on the demo's captioner,
# whose weights were changed by normal noise relative to themselves: 0.87 to 1 at 0.4 % (bf16 rounding) and 1 %, 0.72 to
# 0.87 at 3 %, 0.44 to 0.67 at 20 % and more.
LEAST_AGREEMENT = 0.7


# Subjects of the questions for a model that accepts no images.
IN_WORDS = ("a red disc", "a blue square", "a green triangle", "yellow stripes", "a chess board", "a rainbow")


@cache
def questions() -> tuple[tuple[bytes, bytes], ...]:
    """Return the messages of the probe's six questions about images.

    Each comes with a question in words, for a model that refuses images.
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
    """Return the mean share (0 to 1) of words in common, in order, between answers to the same questions."""
    ratios = [
        difflib.SequenceMatcher(None, one.lower().split(), other.lower().split(), autojunk=False).ratio()
        for one, other in zip(answers, known, strict=True)
    ]
    return sum(ratios) / len(ratios)


def check(where: str, answers: tuple[str, ...], known: tuple[str, ...]) -> float:
    """Return the agreement of ``answers`` with the ``known`` ones. Raises ModelError below LEAST_AGREEMENT."""
    found = agreement(answers, known)
    if found < LEAST_AGREEMENT:
        first = next(n for n, (one, other) in enumerate(zip(answers, known, strict=True)) if one != other)
        raise ModelError(
            f"{where} is not the model that it was: its answers to the fixed pictures agree to {found:.2f} with the "
            f"first ones ({LEAST_AGREEMENT} is the least), '{answers[first][:80]}' instead of '{known[first][:80]}'. "
            "Serve that one again, or give this one another name: its texts are then made anew"
        )
    return found
