"""Count the claims of a fused text that none of its sources supports: numbers in digits, and quoted words."""

import re
from collections.abc import Sequence

from pairmill.ops.text.words import WORD

VERSION = 1  # increase when a text gets another count, rare ones aside
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
NAMED = {name: str(number) for number, name in enumerate(NAMES)}
# An apostrophe inside or after a word opens no quotation; a longer passage is not a quotation.
QUOTED = re.compile(
    r"\"([^\"\n]{1,200})\"|“([^”\n]{1,200})”|«([^»\n]{1,200})»|‘([^’\n]{1,200})’(?!\w)|(?<![\w'])'([^'\n]{1,200})'(?![\w'])"
)


def count_unsupported(text: str, sources: Sequence[str]) -> int:
    """Return how many distinct numbers and quotations of ``text`` occur in none of ``sources``.

    Numbers are compared by value: "1,000" equals "1000", and "3" equals a source's "three". Numbers written as words
    are no claims. Quotations are compared by their words, ignoring case, spaces and punctuation.
    """
    plain = [WORD.findall(source.casefold()) for source in sources]
    known = {NAMED[word] for words in plain for word in words if word in NAMED}.union(*map(_numbers, sources))
    said = [f" {' '.join(words)} " for words in plain]
    numbers = _numbers(QUOTED.sub(" ", text)) - known
    quoted = (next(filter(None, found.groups())) for found in QUOTED.finditer(text))
    quotations = {" ".join(WORD.findall(each.casefold())) for each in quoted} - {""}
    return len(numbers) + sum(not any(f" {each} " in source for source in said) for each in quotations)


def _numbers(text: str) -> set[str]:
    """Return the values of the numbers in digits in ``text``; a comma-separated list has a value for each number."""
    found = (each.replace(",", "") if THOUSANDS.fullmatch(each) else each for each in NUMBER.findall(text))
    return {_value(number) for each in found for number in each.split(",")}


def _value(text: str) -> str:
    """Normalise a number: drop leading zeros, and trailing zeros after the point."""
    whole, point, rest = text.partition(".")
    if "." in rest:  # a date or a version: unchanged
        return text
    rest = rest.rstrip("0")
    return (whole.lstrip("0") or "0") + (f".{rest}" if point and rest else "")
