"""Extract noun phrases from sentences, as candidates for tags, and find the names of a list in texts."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pairmill.ops.batch import Batch
from pairmill.ops.models.language.dependency_parser import DependencyParser, Word
from pairmill.ops.text.sentence_structure import english_parses

# Dependency labels of words that form a phrase with the noun after them: "red wine", "wine glass".
MODIFIERS = {"amod", "compound", "nmod"}
MODIFYING = {"NOUN", "PROPN", "ADJ"}
MOST_WORDS = 4
SPELLED = re.compile(r"[^\W\d_]{2,}(?:['’-][^\W\d_]+)*")
IRREGULAR = {"men": "man", "women": "woman", "children": "child", "people": "person", "feet": "foot", "teeth": "tooth",
             "geese": "goose", "mice": "mouse"}  # fmt: skip
_TOKEN = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
ENDINGS = (("ies", "y"), ("ves", "f"), ("ves", "fe"), ("es", ""), ("s", ""))


@dataclass(frozen=True)
class NounPhrases:
    """Read ``text`` (list of sentences); add ``noun_phrases``, a sorted list of (phrase, is plural) for each sentence.

    A phrase is a common noun in lower case with none or more of the adjectives and nouns directly before it, four words
    at most: "glass", "wine glass", "red wine glass". "Wine" alone is no phrase there, because a wine glass is no wine.
    Proper nouns alone are no phrases, so that tags name no person. Sentences in other languages than English get none,
    because the parser's labels are defined for English. Only the first 2,000 characters of a text are read. Raises
    ModelError as `DependencyParser` does.
    """

    model: str
    batch_size: int = 128
    version: int = 1

    def __call__(self, batch: Batch) -> Batch:
        """Return ``batch`` with the column ``noun_phrases`` added."""
        texts: list[str] = batch["text"]
        found: list[list[tuple[str, bool]]] = [[] for _ in texts]
        for row, words in english_parses(texts, DependencyParser(self.model, self.batch_size)):
            found[row] = sorted(noun_phrases(words))
        return batch | {"noun_phrases": found}


def noun_phrases(words: list[Word]) -> set[tuple[str, bool]]:
    """Return the distinct (phrase, is plural) of a parsed sentence."""
    return {
        (phrase, word.tag == "NNS")
        for at, word in enumerate(words)
        if word.pos == "NOUN" and word.label != "compound" and SPELLED.fullmatch(word.text)
        for phrase in _phrases(words, at)
    }


def _phrases(words: list[Word], at: int) -> Iterator[str]:
    """Yield the noun at ``at`` alone, then with one more preceding modifier each time."""
    phrase = words[at].text.lower()
    yield phrase
    for before in range(at - 1, max(-1, at - MOST_WORDS), -1):
        word = words[before]
        inside = before < word.head <= at
        if not (inside and word.label in MODIFIERS and word.pos in MODIFYING and SPELLED.fullmatch(word.text)):
            return
        phrase = f"{word.text.lower()} {phrase}"
        yield phrase


def singulars(phrase: str) -> list[str]:
    """Return the possible singulars of a phrase whose last word is a plural: "boxes" gives "box" and "boxe"."""
    first, space, last = phrase.rpartition(" ")
    forms = [last.removesuffix(ending) + instead for ending, instead in ENDINGS if last.endswith(ending)]
    forms = [IRREGULAR[last]] if last in IRREGULAR else forms
    return [f"{first}{space}{form}" for form in forms if len(form) > 1]


def merge_plurals(counts: Mapping[tuple[str, bool], int]) -> Counter[str]:
    """Return phrase -> count, with counts of plurals added to their singulars if the singular is counted too.

    So "glasses" joins "glass", but "stairs" not "stair" if no text has it. A sentence with both forms counts twice.
    """
    merged: Counter[str] = Counter()
    for (phrase, is_plural), n in sorted(counts.items()):
        known = [form for form in singulars(phrase) if (form, False) in counts] if is_plural else []
        merged[known[0] if known else phrase] += n
    return merged


class NamedWords:
    """Map a text to the indices of the names that it contains as whole words, regardless of case.

    A name's last word also counts as a plural ("boxes", "men"). A longer name hides the shorter names inside it: "red
    fox" is not also "fox". Some 20 µs for a sentence of 20 words.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._index: dict[tuple[str, ...], int] = {}
        for index, name in enumerate(names):
            for form in [name.lower(), *plurals(name.lower())]:
                self._index.setdefault(tuple(_TOKEN.findall(form)), index)
        self._lengths = sorted({len(form) for form in self._index if form}, reverse=True)

    def __call__(self, text: str) -> set[int]:
        """Return the indices of the names in ``text``."""
        words = _TOKEN.findall(text.lower())
        found, at = set[int](), 0
        while at < len(words):
            length = next((n for n in self._lengths if tuple(words[at : at + n]) in self._index), 0)
            found |= {self._index[tuple(words[at : at + length])]} if length else set()
            at += max(1, length)
        return found


def plurals(name: str) -> list[str]:
    """Return the possible plurals of a name, some of which are no words: "box" gives "boxes" and "boxs"."""
    first, space, last = name.rpartition(" ")
    forms = [last.removesuffix(end) + ending for ending, end in ENDINGS if last.endswith(end)]
    return [f"{first}{space}{form}" for form in [*forms, *(many for many, one in IRREGULAR.items() if one == last)]]
