"""Score sentences by their dependency parse: the most relations that one object has, and whether anything happens.

RealSyn (arXiv 2502.12513) keeps sentences of complexity C1 and more that hold an action, after CAT (Radenovic et al.
2023, arXiv 2301.02280): the complexity of a caption is the largest number of relations of any object in its parse,
attributes included, so that the bird of "a black cat is chasing a small brown bird" has three. Neither paper gives the
parser or its labels; what follows is our reading of it in the labels of spaCy's English pipelines.

Of 13,005 distinct sentences of two manuals (after the rules on length, addresses and emoji; 11,429 of them English, of
which 9,062 end as sentences do; the others are headings, captions and cells) these readings drop, in per cent:

| reading | all | English | ending as sentences |
|---|--:|--:|--:|
| complexity: relations between two objects alone | 45.9 | 38.6 | 31.4 |
| complexity: attributes too, but compounds and numbers | 14.9 | 5.5 | 1.2 |
| complexity: every attribute (**ours**) | 8.2 | 1.5 | 0.8 |
| action: any verb | 24.1 | 17.5 | 9.3 |
| action: a verb with a subject, or a participle at a noun | 42.3 | 34.5 | 23.5 |
| action: the same, or a verb at the root (**ours**) | 29.6 | 23.6 | 15.1 |
| both of ours | 33.1 | 24.4 | 15.7 |

The paper's whole step on the quality of sentences drops 14.6 %, what length, addresses and emoji drop included. So it
cannot ask for two objects; CAT's example counts attributes. Commands have no subject ("Add the flour to the bowl"), but
say what is done: without the root one sentence in twelve would fall for its mood. Any verb would keep infinitives and
"a painted wall", in which nothing happens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pairmill.ops.batch import Batch
from pairmill.ops.models.language.dependency_parser import DependencyParser
from pairmill.ops.models.language.word import Word
from pairmill.ops.text.language import language_of
from pairmill.ops.text.sentence_quality import WORD

OBJECTS = {"NOUN", "PROPN"}
# Labels of words below a noun, each an attribute of it: "red", "two", "brick", "the boy's", "chasing a cat".
ATTRIBUTES = {"amod", "nummod", "compound", "nmod", "poss", "appos", "acl", "relcl"}
# Labels of a noun that a verb or a preposition relates to something: who does, what is done to, what is on it.
ARGUMENTS = {"nsubj", "nsubjpass", "dobj", "dative", "attr", "oprd", "pobj"}
SUBJECTS = {"nsubj", "nsubjpass", "csubj", "csubjpass"}
# (tag, label) of participles and gerunds of which a noun is the understood subject: "a smiling child", "a dog chasing a
# cat", "a house built of brick", "he is there, holding an umbrella". Not "a painted wall", which is a state.
PARTICIPLES = {("VBG", "amod"), ("VBG", "acl"), ("VBG", "advcl"), ("VBN", "acl")}
# A longer text is parsed as far as this, some 350 words: the time that a parse takes grows with the length.
MOST_LETTERS = 2000
# The language of a shorter sentence is a guess (ops.text.language): it is parsed whatever the guess.
FEWEST_WORDS = 6


@dataclass(frozen=True)
class SentenceStructure:
    """Read ``text`` (list of sentences); add ``complexity`` (int, from 0) and ``has_action`` (bool) by ``model``.

    ``model`` is an English pipeline of spaCy, 'spacy:NAME'. Both are None where a sentence of six words or more is of
    another language, so that any rule on them drops it. Of a text over 2,000 characters the rest is not read.
    Raises ModelError as `DependencyParser` does.
    """

    model: str
    batch_size: int = 128
    version: int = 1

    def __call__(self, batch: Batch) -> Batch:
        texts: list[str] = batch["text"]
        scores: list[tuple[int | None, bool | None]] = [(None, None)] * len(texts)
        for row, words in english_parses(texts, DependencyParser(self.model, self.batch_size)):
            scores[row] = complexity(words), has_action(words)
        return batch | {"complexity": [value for value, _ in scores], "has_action": [action for _, action in scores]}


def english_parses(texts: list[str], parser: DependencyParser) -> Iterator[tuple[int, list[Word]]]:
    """Yield (row, parse) of each text that may be English, none of them read beyond MOST_LETTERS."""
    rows = [row for row, text in enumerate(texts) if _may_be_english(text)]
    if rows:
        yield from zip(rows, parser.parse([texts[row][:MOST_LETTERS] for row in rows]), strict=True)


def _may_be_english(text: str) -> bool:
    return len(WORD.findall(text)) < FEWEST_WORDS or language_of(text) == "en"


def complexity(words: list[Word]) -> int:
    """Count the relations of the noun that has most: 0 without a noun, or where none has any.

    A relation is an attribute (ATTRIBUTES), a preposition with its object, and the noun's own part in what a verb or a
    preposition says (ARGUMENTS), in which a coordinated noun shares.
    """
    phrases = {word.head for word in words if word.label in ("pobj", "pcomp")}
    relations = [0] * len(words)
    for at, word in enumerate(words):
        relations[word.head] += word.label in ATTRIBUTES or (word.label == "prep" and at in phrases)
        relations[at] += words[_coordinated(words, at)[-1]].label in ARGUMENTS
    return max((n for n, word in zip(relations, words, strict=True) if word.pos in OBJECTS), default=0)


def has_action(words: list[Word]) -> bool:
    """Tell whether something happens, of which something is or may be the subject. One of these suffices:

    - a verb with a subject of its own or of the verb that it is coordinated with ("is thin and runs");
    - a verb at the root, without one: "Add the flour", "Riding a bike". "There is" is none;
    - a participle or gerund (PARTICIPLES) of which a noun is the understood subject.

    "Be" as a copula is no verb to spaCy, infinitives ("it is good to rest") and past participles before their noun are
    no action.
    """
    subjects = {word.head for word in words if word.label in SUBJECTS}
    existential = {word.head for word in words if word.label == "expl"}
    return any(
        not subjects.isdisjoint(_coordinated(words, at)) or word.head == at or (word.tag, word.label) in PARTICIPLES
        for at, word in enumerate(words)
        if word.pos == "VERB" and at not in existential
    )


def _coordinated(words: list[Word], at: int) -> list[int]:
    """List a word and those before it that it is coordinated with, up to the first ("red, green and blue")."""
    chain = [at]
    while words[chain[-1]].label == "conj" and words[chain[-1]].head != chain[-1]:
        chain.append(words[chain[-1]].head)
    return chain
