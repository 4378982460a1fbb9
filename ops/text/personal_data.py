"""Find what looks like personal data in sentences: mail addresses, telephone and card numbers, IBANs, addresses."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from pairmill.ops.batch import Batch

MOST_LETTERS = 2_000  # of a sentence that are looked at


@dataclass(frozen=True)
class PersonalData:
    """Read ``text`` (list of sentences); add ``has_email``, ``has_phone``, ``has_card``, ``has_iban``, ``has_address``.

    By the patterns of personal_data.yaml, with check digits. Names are not found.
    """

    version: int = 1

    def __call__(self, batch: Batch) -> Batch:
        """Return ``batch`` with one column of bools added for each kind."""
        found = [kinds_in(text) for text in batch["text"]]
        return batch | {f"has_{kind}": [kind in each for each in found] for kind in _patterns()}


@cache
def _patterns() -> dict[str, list[re.Pattern[str]]]:
    """Compile the patterns of personal_data.yaml, by kind."""
    kinds = yaml.safe_load((Path(__file__).parent / "personal_data.yaml").read_text("utf-8"))
    return {kind: [re.compile(each) for each in patterns] for kind, patterns in kinds.items()}


def kinds_in(text: str) -> set[str]:
    """Return the kinds of personal data in a text."""
    text = text[:MOST_LETTERS]
    if not (any(map(str.isdigit, text)) or "@" in text or "[" in text or "(" in text):
        return set()  # 19 of 20 sentences
    matches = ((kind, each[0]) for kind, patterns in _patterns().items() for p in patterns for each in p.finditer(text))
    return {kind for kind, match in matches if _is_right(kind, match)}


def _is_right(kind: str, match: str) -> bool:
    """Return whether the check digits of a card number or an IBAN are right, and a telephone number is long enough."""
    digits = [int(each) for each in match if each.isdecimal()]
    if kind == "phone":
        return 8 <= len(digits) <= 15
    if kind == "card":
        doubled = [sum(divmod(2 * each, 10)) for each in digits[-2::-2]]
        return digits[0] in (2, 3, 4, 5, 6) and sum(digits[-1::-2] + doubled) % 10 == 0
    plain = match.replace(" ", "")
    return kind != "iban" or int("".join(str(int(each, 36)) for each in plain[4:] + plain[:4])) % 97 == 1
