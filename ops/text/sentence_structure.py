"""Score sentences by their dependency parse: the most relations of any one object, and whether there is an action.

RealSyn (arXiv 2502.12513) keeps sentences of complexity C1 and higher that contain an action, after CAT (Radenovic et
al. 2023, arXiv 2301.02280). There the complexity of a caption is the largest number of relations of any object in its
parse, attributes included: in "a black cat is chasing a small brown bird" the bird has three. Neither paper names the
parser or its labels; the reading here uses the labels of spaCy's English pipelines.

The measurement of complexity covers 13,005 distinct sentences of two manuals, after the rules on length, addresses and
emoji. 11,429 of them are English, of which 9,062 end as sentences do; the others are headings, captions and cells. The
readings drop, in per cent:

| reading | all | English | ending as sentences |
|---|--:|--:|--:|
| complexity: relations between two objects alone | 45.9 | 38.6 | 31.4 |
| complexity: attributes too, except compounds and numbers | 14.9 | 5.5 | 1.2 |
| complexity: every attribute (**ours**) | 8.2 | 1.5 | 0.8 |

The paper's whole step on sentence quality drops 14.6 %, including what length, addresses and emoji drop. It can
therefore not require two objects, and CAT's example counts attributes.

An action is any verb, "be" and other auxiliaries included. It is the one reading by which all 38 texts that the paper
prints (figures 10 to 12), and which therefore passed its rules, have an action: 5 lose it where a verb needs a subject
or the root ("Cheers, and enjoy the lake!", "There are photos of it"), 1 where auxiliaries do not count. The shares of
all readings are in infra/REALSYN.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from pairmill.ops.batch import Batch
from pairmill.ops.models.language.dependency_parser import DependencyParser, Word
from pairmill.ops.text.sentence_quality import WORD, language_of

OBJECTS = {"NOUN", "PROPN"}
# Dependency labels of a noun's attributes: "red", "two", "brick", "the boy's", "chasing a cat".
ATTRIBUTES = {"amod", "nummod", "compound", "nmod", "poss", "appos", "acl", "relcl"}
# Dependency labels of a noun that takes part in a relation of a verb or preposition: the agent, the patient, the place.
ARGUMENTS = {"nsubj", "nsubjpass", "dobj", "dative", "attr", "oprd", "pobj"}
ACTIONS = {"VERB", "AUX"}
# Characters of a text that are parsed, some 350 words: the time of a parse grows with the length.
MOST_LETTERS = 2000
# The language of a shorter sentence is unreliable (`language_of`), so it is parsed whatever language is identified.
FEWEST_WORDS = 6


@dataclass(frozen=True)
class SentenceStructure:
    """Read ``text`` (list of sentences); add ``complexity`` (int, >= 0) and ``has_action`` (bool), parsed by ``model``.

    ``model`` is an English pipeline of spaCy, 'spacy:NAME'. Both scores are None for a sentence of six words or more in
    another language: any rule drops it. The first 2,000 characters are read. Raises ModelError as `DependencyParser`.
    """

    model: str
    batch_size: int = 128
    version: int = 2

    def __call__(self, batch: Batch) -> Batch:
        """Return ``batch`` with the columns ``complexity`` and ``has_action`` added."""
        texts: list[str] = batch["text"]
        scores: list[tuple[int | None, bool | None]] = [(None, None)] * len(texts)
        for row, words in english_parses(texts, DependencyParser(self.model, self.batch_size)):
            scores[row] = complexity(words), has_action(words)
        return batch | {"complexity": [value for value, _ in scores], "has_action": [action for _, action in scores]}


def english_parses(texts: list[str], parser: DependencyParser) -> Iterator[tuple[int, list[Word]]]:
    """Yield (row, parse) of each text that may be English; only the first MOST_LETTERS characters are parsed."""
    counts = [len(WORD.findall(text)) for text in texts]
    rows = [row for row, text in enumerate(texts) if counts[row] < FEWEST_WORDS or language_of(text) == "en"]
    if rows:
        yield from zip(rows, parser.parse([texts[row][:MOST_LETTERS] for row in rows]), strict=True)


def complexity(words: list[Word]) -> int:
    """Return the number of relations of the noun that has most; 0 without a noun or a relation.

    A relation is an attribute (ATTRIBUTES), a preposition with its object, or the noun's own role at a verb or
    preposition (ARGUMENTS), which coordinated nouns share.
    """
    phrases = {word.head for word in words if word.label in ("pobj", "pcomp")}
    relations = [0] * len(words)
    for at, word in enumerate(words):
        relations[word.head] += word.label in ATTRIBUTES or (word.label == "prep" and at in phrases)
        relations[at] += words[_coordination(words, at)[-1]].label in ARGUMENTS
    return max((n for n, word in zip(relations, words, strict=True) if word.pos in OBJECTS), default=0)


def has_action(words: list[Word]) -> bool:
    """Return whether a parsed sentence has a verb; "be" and other auxiliaries count, in any form and mood."""
    return any(word.pos in ACTIONS for word in words)


def _coordination(words: list[Word], at: int) -> list[int]:
    """List a word and the words before it with which it is coordinated, up to the first ("red, green and blue")."""
    chain = [at]
    while words[chain[-1]].label == "conj" and words[chain[-1]].head != chain[-1]:
        chain.append(words[chain[-1]].head)
    return chain
