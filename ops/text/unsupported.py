"""Count what a fused text claims and none of its sources says: numbers in digits, and quoted words."""

from __future__ import annotations

import re
from collections.abc import Sequence

VERSION = 1  # counts up when a text has another count
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
NAMED = {name: str(number) for number, name in enumerate(NAMES)}
WORD = re.compile(r"\w+")
# An apostrophe inside or behind a word opens no quotation, and what runs on for a paragraph is none.
QUOTED = re.compile(
    r"\"([^\"\n]{1,200})\"|“([^”\n]{1,200})”|«([^»\n]{1,200})»|‘([^’\n]{1,200})’(?!\w)|(?<![\w'])'([^'\n]{1,200})'(?![\w'])"
)


def unsupported(text: str, sources: Sequence[str]) -> int:
    """Count the distinct numbers and quotations of ``text`` that stand in none of ``sources``, >= 0.

    Numbers are compared by value ("1,000" and "1000", and "3" where a source says "three"), those written as words are
    no claim; quotations by their words, whatever their case, spaces and marks.
    """
    known = {number for source in sources for number in (*_numbers(source), *_named(source))}
    said = [f" {_plain(source)} " for source in sources]
    numbers = set(_numbers(QUOTED.sub(" ", text))) - known
    quotations = {_plain(next(filter(None, found.groups()))) for found in QUOTED.finditer(text)} - {""}
    return len(numbers) + sum(not any(f" {each} " in source for source in said) for each in quotations)


def _numbers(text: str) -> list[str]:
    return [number for found in NUMBER.findall(text) for number in _values(found)]


def _values(found: str) -> list[str]:
    """Return the value of a number, or of each where a comma only lists them."""
    if THOUSANDS.fullmatch(found):
        found = found.replace(",", "")
    return [_value(each) for each in found.split(",")]


def _value(text: str) -> str:
    whole, point, rest = text.partition(".")
    if "." in rest:  # a date or a version: as it is written
        return text
    rest = rest.rstrip("0")
    return (whole.lstrip("0") or "0") + (f".{rest}" if point and rest else "")


def _named(text: str) -> list[str]:
    return [NAMED[word] for word in WORD.findall(text.casefold()) if word in NAMED]


def _plain(text: str) -> str:
    return " ".join(WORD.findall(text.casefold()))
