"""Remove a generated text's reasoning; classify it as empty, a refusal, a loop, a copy of its prompt, cut off or ok."""

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from pairmill.ops.text.words import WORD

VERSION = 2  # increase when a text is classified otherwise, rare ones aside
# A unit of up to 24 words repeated 4 times in a row is a loop. A unit of one or two words needs 6 repeats, since "very,
# very, very" and "row by row by row" occur in good text.
LONGEST_UNIT = 24
TIMES, TIMES_SHORT = 4, 6
SHORT_UNIT = 2
# For text without separate words (digits run together, one long token): a unit of characters 12 times in a row.
CHARACTER_LOOP = re.compile(r"(.{2,30}?)\1{11,}", re.DOTALL)
# Finish reasons of servers that withheld the response.
WITHHELD = frozenset({"content_filter", "refusal"})
# Words in a row from an instruction that are a copy and no coincidence; and the fewest words of a whole shorter
# instruction that count as a copy at the start of a text.
COPIED, SHORTEST_COPY = 8, 3
# Characters of a text in which a refusal is searched, and those after a hedge (an apology) within which one begins.
OPENING, AFTER_HEDGE = 400, 120
GAP = '[^.!?。！？,;:،؛，、：\\n"“”«»「」]{0,60}?'
QUOTES = "\"'“”«»„"
MARKUP = re.compile(r"[\s*_#>-]+")
BETWEEN = re.compile(r"[\s,.:;!。、，！…–-]+")


def generation_status(text: str, finish: str = "stop", instructions: Sequence[str] = ()) -> str:
    """Return the status of a generated text: the first of the following that applies.

    'refusal': the server withheld the response, or the model states that it cannot comply. 'empty': no word.
    'repeating': a loop. 'copied_prompt': a copy from ``instructions``, the prompt's literal parts without the filled-in
    texts. 'cut_off': any finish reason but 'stop'. 'ok' otherwise.

    The content is judged before the end: a loop or a copy mostly ends at the token limit. ``finish`` is the server's
    finish reason: 'length' at the token limit, 'content_filter' or 'refusal' if withheld, 'abort', 'tool_calls' and so
    on. Refusals are recognised in eighteen languages, by the phrases of refusals.txt beside this file.
    """
    if finish in WITHHELD:
        return "refusal"
    if not (words := [word.casefold() for word in WORD.findall(text)]):
        return "empty"
    if is_refusal(text):
        return "refusal"
    if _has_loop(words) or CHARACTER_LOOP.search(text):
        return "repeating"
    if any(_is_copied(words, each) for each in instructions):
        return "copied_prompt"
    return "ok" if finish == "stop" else "cut_off"


def _is_copied(words: list[str], instruction: str) -> bool:
    """Return whether a text copies COPIED words in a row from an instruction, or begins with a whole shorter one.

    A shorter instruction must end as a sentence does: an open one ("A photo of", "The image shows {caption}") is meant
    to be continued.
    """
    told = [word.casefold() for word in WORD.findall(instruction)]
    if len(told) < COPIED:
        is_whole = instruction.rstrip().endswith((".", "!", "?", ":"))
        return is_whole and len(told) >= SHORTEST_COPY and words[: len(told)] == told
    runs = {tuple(told[n : n + COPIED]) for n in range(len(told) - COPIED + 1)}
    return any(tuple(words[n : n + COPIED]) in runs for n in range(len(words) - COPIED + 1))


def _has_loop(words: list[str]) -> bool:
    """Return whether a unit of up to LONGEST_UNIT words repeats in a row: each word equals one a unit before."""
    for unit in range(1, min(LONGEST_UNIT, len(words) // 2) + 1):
        needed = unit * ((TIMES_SHORT if unit <= SHORT_UNIT else TIMES) - 1)
        run = 0
        for place in range(unit, len(words)):
            run = run + 1 if words[place] == words[place - unit] else 0
            if run >= needed:
                return True
    return False


def is_refusal(text: str) -> bool:
    """Return whether a text begins by stating that its writer cannot see an image, or cannot or will not help.

    Quotes around the whole text are ignored; a text that begins with a shorter quotation, as a sign's, is no refusal.
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


# Marks of reasoning: <think> (Qwen, DeepSeek, GLM), <seed:think> (Seed-OSS), [THINK] (Magistral), ◁think▷ (Kimi-VL),
# <|begin_of_thought|> (Sky-T1), <unused94> (MedGemma), <|channel|>analysis (gpt-oss). A mark right after a quotation
# mark is a text that the image shows.
_PREFIX = r"(?:seed:|\w{1,12}:)?"
_THOUGHT = r"(?:think(?:ing)?|thoughts?)"
_PART = r"(?:reason(?:ing)?|reflection|analysis|scratchpad|summary)"
_QUOTED = r"(?<![\"'“‘«`])"
_WRITTEN = rf"(?:<{_PREFIX}{_THOUGHT}(?:\s[^<>]{{0,80}})?>|&lt;{_PREFIX}{_THOUGHT}&gt;|\[think\])"
_TOKEN = (
    rf"(?:◁{_THOUGHT}▷|<\|(?:begin_of_)?(?:{_THOUGHT}|{_PART})\|>|<unused94>|<\|channel\|>\s*(?:analysis|commentary))"
)
_OPENED = re.compile(rf"{_QUOTED}(?:{_WRITTEN}|{_TOKEN})", re.IGNORECASE)
# The written marks can also be words that an image shows, so one without its closing mark must begin a line.
_UNCLOSED = re.compile(rf"^[ \t]*{_WRITTEN}|{_QUOTED}{_TOKEN}", re.IGNORECASE | re.MULTILINE)
_CLOSED = re.compile(
    rf"{_QUOTED}(?:</{_PREFIX}{_THOUGHT}\s*>|&lt;/{_PREFIX}{_THOUGHT}&gt;|\[/think\]|◁/{_THOUGHT}▷"
    rf"|<\|(?:end_of_|/)(?:{_THOUGHT}|{_PART})\|>|<unused95>|<\|channel\|>\s*final\s*<\|message\|>)",
    re.IGNORECASE,
)
# <SUMMARY> to <REASONING> (LLaVA-CoT), <analysis>, <scratchpad>: ordinary words, so only at the start of a text.
_PART_OPENED = re.compile(rf"\s*<{_PREFIX}{_PART}(?:\s[^<>]{{0,80}})?>", re.IGNORECASE)
_PART_CLOSED = re.compile(rf"{_QUOTED}</{_PREFIX}{_PART}\s*>", re.IGNORECASE)
# Marks of the answer itself, which is between them: <answer>, <CAPTION>, <|begin_of_box|> (GLM), <|begin_of_solution|>.
_ANSWER = r"(?:answer|caption|conclusion|final|output|response|box|solution)"
_FRAME = re.compile(
    rf"^(?:<{_ANSWER}>|<\|begin_of_{_ANSWER}\|>)|(?:</{_ANSWER}>|<\|end_of_{_ANSWER}\|>|<\|(?:end|return)\|>)$",
    re.IGNORECASE,
)


def without_reasoning(text: str) -> str:
    """Return a generated text without the model's reasoning; '' if it ends before the answer begins.

    The answer is the text after the last closing mark, with or without an opening one; if that is empty, the text
    before the first opening mark. A text without marks is returned unchanged.
    """
    answer, closed = _after_last(_CLOSED, text)
    if closed and not answer.strip():
        opened = _OPENED.search(text)
        answer = text[: opened.start()] if opened else ""
    elif opened := (_OPENED if closed else _UNCLOSED).search(answer):
        answer = answer[: opened.start()]
    if _PART_OPENED.match(answer):
        answer, closed = _after_last(_PART_CLOSED, answer)
        answer = answer if closed else ""
    return text if answer == text else _FRAME.sub("", answer.strip()).strip()


def _after_last(mark: re.Pattern[str], text: str) -> tuple[str, bool]:
    """Return (text after the last ``mark``, True), or (the whole text, False) without a mark."""
    ends = [found.end() for found in mark.finditer(text)]
    return (text[ends[-1] :], True) if ends else (text, False)
