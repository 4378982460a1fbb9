"""Classify a generated text: empty, repeating, cut off or ok."""

from __future__ import annotations

import re

VERSION = 1  # counts up when a text is classified otherwise
WORD = re.compile(r"\w+")
# A unit of up to 24 words that stands 4 times in a row is a loop; one of one or two words needs 6, since "very, very,
# very" and "row by row by row" occur in good text.
LONGEST_UNIT = 24
TIMES, TIMES_SHORT = 4, 6
SHORT_UNIT = 2
# Text without words to compare (digits run together, one long token): a unit of characters 12 times in a row.
CHARACTER_LOOP = re.compile(r"(.{2,30}?)\1{11,}", re.DOTALL)


def generation_status(text: str, finished: bool) -> str:
    """Return the first that fits: 'empty' (no word), 'repeating' (a loop), 'cut_off' (by the token limit), 'ok'.

    A loop goes before the limit, since a looping text usually ends there. ``finished``: it ended by an end token.
    """
    words = [word.casefold() for word in WORD.findall(text)]
    if not words:
        return "empty"
    if _has_loop(words) or CHARACTER_LOOP.search(text):
        return "repeating"
    return "ok" if finished else "cut_off"


def _has_loop(words: list[str]) -> bool:
    """Whether a unit of words stands often enough in a row: each word of a run then equals the one a unit before it."""
    for unit in range(1, min(LONGEST_UNIT, len(words) // 2) + 1):
        needed = unit * ((TIMES_SHORT if unit <= SHORT_UNIT else TIMES) - 1)
        run = 0
        for place in range(unit, len(words)):
            run = run + 1 if words[place] == words[place - unit] else 0
            if run >= needed:
                return True
    return False
