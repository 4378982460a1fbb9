"""Recognise texts in which a model refuses, in eighteen languages, by the phrases of refusals.txt beside this file."""

import re
from functools import cache
from pathlib import Path

# Characters of a text that are searched, and those after a hedge (an apology) within which a refusal begins.
OPENING, AFTER_HEDGE = 400, 120
GAP = '[^.!?。！？,;:،؛，、：\\n"“”«»「」]{0,60}?'
QUOTES = "\"'“”«»„"
MARKUP = re.compile(r"[\s*_#>-]+")
BETWEEN = re.compile(r"[\s,.:;!。、，！…–-]+")


def is_refusal(text: str) -> bool:
    """Return whether a text begins by stating that its writer cannot see an image, or cannot or will not help.

    Quotation marks around the whole text are ignored; a text that begins with a shorter quotation, such as a sign's, is
    no refusal.
    """
    text = text.strip()
    if len(text) > 1 and text[0] in QUOTES and text[-1] in QUOTES:
        text = text[1:-1]
    text = " ".join(text[:OPENING].replace("’", "'").lower().split())
    hedge, apologetic, refusal = _phrases()
    place = _after(MARKUP, text, 0)
    if refusal.match(text, place):
        return True
    start = place
    while found := hedge.match(text, place):
        place = _after(BETWEEN, text, found.end())
        if refusal.match(text, place) or apologetic.match(text, place):
            return True
    if place == start:
        return False
    # After an apology other words may come first: "I'm sorry for the confusion, but I can't …".
    return any(refusal.match(text, place + n) for n in range(min(AFTER_HEDGE, len(text) - place)))


def _after(pattern: re.Pattern[str], text: str, place: int) -> int:
    """Return the end of a match of ``pattern`` at ``place``, or ``place``."""
    found = pattern.match(text, place)
    return found.end() if found else place


@cache
def _phrases() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """Compile the patterns of hedges, of apologetic refusals and of refusals; the latter two at a word's beginning."""
    kinds: dict[str, list[str]] = {"hedge": [], "apologetic": [], "refusal": []}
    for line in (Path(__file__).parent / "refusals.txt").read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            kind, _, pattern = line.partition(" ")
            kinds[kind].append(pattern.replace("~", GAP))
    hedge, apologetic, refusal = (f"(?:{'|'.join(patterns)})" for patterns in kinds.values())
    # Chinese and Japanese put no space between words, so there a refusal may begin after any of their letters.
    begin = r"(?:\b|(?<=[\u3040-\u9fff]))"
    return re.compile(hedge), re.compile(begin + apologetic), re.compile(begin + refusal)
