"""The structure of a sentence by spaCy's own tree, noun by noun and verb by verb, as the definition is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spacy.tokens import Doc, Token


def complexity(sentence: Doc) -> int:
    most = 0
    for noun in sentence:
        if noun.pos_ not in ("NOUN", "PROPN"):
            continue
        relations = 0
        for child in noun.children:
            if child.dep_ in ("amod", "nummod", "compound", "nmod", "poss", "appos", "acl", "relcl"):
                relations += 1
            if child.dep_ == "prep" and [below for below in child.children if below.dep_ in ("pobj", "pcomp")]:
                relations += 1
        if first_of(noun).dep_ in ("nsubj", "nsubjpass", "dobj", "dative", "attr", "oprd", "pobj"):
            relations += 1
        most = max(most, relations)
    return most


def has_action(sentence: Doc) -> bool:
    return any(word.pos_ == "VERB" or word.pos_ == "AUX" for word in sentence)


def first_of(word: Token) -> Token:
    return first_of(word.head) if word.dep_ == "conj" else word
