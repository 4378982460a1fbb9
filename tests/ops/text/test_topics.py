"""Topics against a slow twin and on texts with known topics; names; names of clusters."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmill.ops.text.topics import allocate, names, topics, word_counts
from tests.examples import examples
from tests.reference import topics as reference

CELLS = st.dictionaries(st.tuples(st.integers(0, 4), st.integers(0, 5)), st.integers(1, 3), min_size=1)
SUBJECTS = (
    "boat wave harbour sail anchor tide", "pan onion butter oven knife salt",
    "planet comet orbit moon star telescope", "violin chord melody rhythm drum flute",
)  # fmt: skip


@given(cells=CELLS, n_topics=st.integers(2, 4), seed=st.integers(0, 9))
@examples(20)
def test_the_fit_is_that_of_plain_loops(cells: dict, n_topics: int, seed: int):
    counts = [(*cell, n) for cell, n in sorted(cells.items())]
    fast = allocate(np.array(counts), n_topics, (5, 6), seed, rounds=4)
    slow = reference.allocate(counts, n_topics, (5, 6), seed, rounds=4)
    for found, expected in zip(fast, slow, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-4)  # float32 against float64
    assert fast[0].sum() == pytest.approx(sum(cells.values()), rel=1e-5)


def test_texts_of_four_subjects_have_four_topics():
    rng = np.random.default_rng(1)
    texts = [" ".join(rng.choice(subject.split(), 8)) for subject in SUBJECTS for _ in range(15)]
    found = topics(texts, 4, shown=6)
    assert {frozenset(topic.words) for topic in found} == {frozenset(subject.split()) for subject in SUBJECTS}
    assert sum(topic.share for topic in found) == pytest.approx(1) and {topic.texts for topic in found} == {15}


def test_there_are_no_topics_without_repeated_words_or_with_few_texts():
    assert topics([], 30) == [] and topics(["one boat"] * 9, 30) == []
    assert topics([f"word{chr(97 + n)}" for n in range(26)], 30) == []


def test_words_of_one_text_of_most_texts_and_function_words_are_left_out():
    vocabulary, counts = word_counts(["the red boat", "the red tide", "the red boat once", "a blue tide"] + ["red"] * 4)
    assert vocabulary == ["boat", "tide"]
    assert counts.tolist() == [[0, 0, 1], [1, 1, 1], [2, 0, 1], [3, 1, 1]]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The boats of Lake Como and of Clara.", {"Lake Como", "Clara"}),
        ("It is late. Boats rest: “Nobody sails.” So says O'Brien", {"O'Brien"}),
        ("nothing here", set()),
        ("", set()),
    ],
)
def test_names_are_capitalised_words_that_begin_no_sentence(text: str, found: set[str]):
    assert names(text) == found
