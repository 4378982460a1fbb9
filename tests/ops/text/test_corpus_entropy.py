"""The entropy over the corpus's word probabilities, against its definition written out."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmill.ops.text.corpus_entropy import COUNT_VERSION, LONGEST, RAREST, CorpusEntropy, count_words, words
from tests.worlds.golden import check_golden

CORPUS = ["The cat sat on the mat.", "The dog sat on the log.", "A cat, a dog and a man in the moon sat still."]
SENTENCE = st.lists(
    st.sampled_from(["the", "cat", "sat", "on", "a", "mat", ",", "dog", ".", "moon", "Zebra"]), max_size=90
).map(" ".join)


def slow(text: str, corpus: list[str]) -> float:
    """theta as the paper writes it, with counts of the whole corpus taken anew for every word."""
    tokens = [token for each in corpus for token in words(each)]
    theta = 0.0
    for token in words(text):
        p = Fraction(tokens.count(token), len(tokens))
        theta -= float(p) * math.log2(p) if p else 0.0
    return theta


def shares(corpus: list[str]) -> dict[str, float]:
    counts = count_words(corpus)
    return {word: n / counts.total() for word, n in counts.items()}


@given(SENTENCE, st.lists(SENTENCE, max_size=4))
def test_it_is_the_sum_over_every_occurrence_of_a_word(text: str, more: list[str]):
    corpus = CORPUS + more
    (found,) = CorpusEntropy(shares(corpus))({"text": [text]})["corpus_entropy"]
    assert found == pytest.approx(slow(text, corpus), abs=1e-4)


def test_a_word_said_twice_counts_twice_and_an_unknown_one_nothing():
    op = CorpusEntropy({"cat": 0.25, "dog": 0.5})
    found = op({"text": ["cat", "cat cat", "cat dog", "zebra", "", "Cat"]})["corpus_entropy"]
    assert found == [0.5, 1.0, 1.0, 0.0, 0.0, 0.0]


def test_a_corpus_of_one_word_has_no_entropy_and_no_negative_zero():
    (found,) = CorpusEntropy({"cat": 1.0})({"text": ["cat"]})["corpus_entropy"]
    assert math.copysign(1, found) == 1


def test_words_are_nltks_punctuation_included():
    assert words("It doesn't cost $3.50 (\"really\"), Mr. Smith.") == [
        "It", "does", "n't", "cost", "$", "3.50", "(", "``", "really", "''", ")", ",", "Mr.", "Smith", "."]  # fmt: skip


def test_words_left_out_for_being_rare_cost_a_sentence_of_81_less_than_two_ten_thousandths():
    assert 81 * -RAREST * math.log2(RAREST) < 2e-4


def test_no_text_costs_more_than_its_first_characters():
    assert words("a.a!" * 10**6) == words(("a.a!" * 10**6)[:LONGEST])


def test_the_words_of_a_version_stay():
    check_golden("word_counts", COUNT_VERSION, [words(text) for text in CORPUS])


def test_the_values_of_a_version_stay():
    check_golden("corpus_entropy", CorpusEntropy({}).version, CorpusEntropy(shares(CORPUS))({"text": CORPUS}))
