"""Classify a generated text: empty, a refusal, repeating, a copy of its prompt, cut off or ok."""

from __future__ import annotations

import re
from collections.abc import Sequence

VERSION = 2  # counts up when a text is classified otherwise
WORD = re.compile(r"\w+")
# A unit of up to 24 words that stands 4 times in a row is a loop; one of one or two words needs 6, since "very, very,
# very" and "row by row by row" occur in good text.
LONGEST_UNIT = 24
TIMES, TIMES_SHORT = 4, 6
SHORT_UNIT = 2
# Text without words to compare (digits run together, one long token): a unit of characters 12 times in a row.
CHARACTER_LOOP = re.compile(r"(.{2,30}?)\1{11,}", re.DOTALL)
# A refusal says so in its first words, and of itself: a sign may say sorry, too, but mostly in quotes, and of "we".
_ITSELF = r"i(?:'m| am)?"
_CANNOT = (
    r"(?:can't|cannot|can not|could not|couldn't|won't|will not|unable to|not able to|not allowed to|don't|do not)"
)
_SERVICE = (
    r"(?:help|assist|comply|fulfil|fulfill|provide|answer|continue|process|analy[sz]e|describe|identify|generate)"
)
_SIGHT = (
    r"(?:see|view|access|open|look at|display|have access to)\b.{0,40}\b(?:image|picture|photo|file|visual|content|it)"
)
REFUSAL = re.compile(
    rf"^[\s*_#>-]*(?:(?:{_ITSELF} )?(?:(?:really|very|so|truly) )?(?:sorry|apologi[sz]e)\b[,.]?"
    rf"(?: (?:but|that|for|however))?[ ,.]*.{{0,40}}\b|unfortunately,? )?{_ITSELF} {_CANNOT} (?:{_SERVICE}|{_SIGHT})\b"
    r"|^[\s*_#>-]*(?:sorry, )?as an? (?:ai|artificial intelligence|(?:large )?language model)\b",
    re.IGNORECASE,
)
OPENING = 200
QUOTES = "\"'“”«»„"
# Why an answer ends, as servers say it: it was withheld.
WITHHELD = frozenset({"content_filter", "refusal"})
# So many words in a row out of an instruction are no accident, nor is a shorter one that a text begins with.
COPIED, SHORTEST_COPY = 8, 3


def generation_status(text: str, finish: str = "stop", instructions: Sequence[str] = ()) -> str:
    """Return the first that fits: 'refusal' (withheld by its server, or the model says that it cannot), 'empty' (no
    word), 'repeating' (a loop), 'copied_prompt' (a piece of ``instructions``, the prompt's own words without what was
    filled into it), 'cut_off' (by the token limit), 'ok'.

    What a text is goes before where it ends: a loop or a copy mostly ends at the limit. ``finish`` is why the answer
    ends: 'length' at the limit, 'content_filter' and 'refusal' when it was withheld. The words of refusals are English.
    """
    if finish in WITHHELD:
        return "refusal"
    words = [word.casefold() for word in WORD.findall(text)]
    if not words:
        return "empty"
    if REFUSAL.match(_unquoted(text)[:OPENING].replace("’", "'")):
        return "refusal"
    if _has_loop(words) or CHARACTER_LOOP.search(text):
        return "repeating"
    if any(_is_copied(words, each) for each in instructions):
        return "copied_prompt"
    return "cut_off" if finish == "length" else "ok"


def _unquoted(text: str) -> str:
    """Return a text without quotation marks around the whole of it: what a sign says has its own before the rest."""
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] in QUOTES and text[-1] in QUOTES else text


def _is_copied(words: list[str], instruction: str) -> bool:
    """Whether a text holds COPIED words of an instruction in a row, or begins with the whole of a shorter one that says
    something by itself: what is left open ("A photo of", "The image shows {caption}") is there to be gone on with."""
    told = [word.casefold() for word in WORD.findall(instruction)]
    if len(told) < COPIED:
        is_whole = instruction.rstrip().endswith((".", "!", "?", ":"))
        return is_whole and len(told) >= SHORTEST_COPY and words[: len(told)] == told
    runs = {tuple(told[n : n + COPIED]) for n in range(len(told) - COPIED + 1)}
    return any(tuple(words[n : n + COPIED]) in runs for n in range(len(words) - COPIED + 1))


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
