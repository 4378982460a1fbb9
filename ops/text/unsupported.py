"""Count the claims of a fused text that none of its sources supports: numbers in digits, and quoted words."""

from __future__ import annotations

import re
from collections.abc import Sequence

VERSION = 1  # increase when a text gets another count
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
NAMED = {name: str(number) for number, name in enumerate(NAMES)}
WORD = re.compile(r"\w+")
# An apostrophe inside or after a word opens no quotation; a longer passage is not a quotation.
QUOTED = re.compile(
    r"\"([^\"\n]{1,200})\"|“([^”\n]{1,200})”|«([^»\n]{1,200})»|‘([^’\n]{1,200})’(?!\w)|(?<![\w'])'([^'\n]{1,200})'(?![\w'])"
)


def unsupported(text: str, sources: Sequence[str]) -> int:
    """Count the distinct numbers and quotations of ``text`` that occur in none of ``sources``, >= 0.

    Numbers are compared by value: "1,000" equals "1000", and "3" equals a source's "three". Numbers written as words
    are no claims. Quotations are compared by their words, ignoring case, spaces and punctuation.
    """
    known = {number for source in sources for number in (*_numbers(source), *_named(source))}
    said = [f" {_plain(source)} " for source in sources]
    numbers = set(_numbers(QUOTED.sub(" ", text))) - known
    quotations = {_plain(next(filter(None, found.groups()))) for found in QUOTED.finditer(text)} - {""}
    return len(numbers) + sum(not any(f" {each} " in source for source in said) for each in quotations)


def _numbers(text: str) -> list[str]:
    """List the values of the numbers in digits in ``text``."""
    return [number for found in NUMBER.findall(text) for number in _values(found)]


def _values(found: str) -> list[str]:
    """Return the value of a number, or the values of a comma-separated list."""
    if THOUSANDS.fullmatch(found):
        found = found.replace(",", "")
    return [_value(each) for each in found.split(",")]


def _value(text: str) -> str:
    """Normalise a number: drop leading zeros, and trailing zeros after the point."""
    whole, point, rest = text.partition(".")
    if "." in rest:  # a date or a version: unchanged
        return text
    rest = rest.rstrip("0")
    return (whole.lstrip("0") or "0") + (f".{rest}" if point and rest else "")


def _named(text: str) -> list[str]:
    """List the values of the numbers from zero to twelve that are written as words."""
    return [NAMED[word] for word in WORD.findall(text.casefold()) if word in NAMED]


def _plain(text: str) -> str:
    """Return the casefolded words of ``text``, separated by spaces."""
    return " ".join(WORD.findall(text.casefold()))
