"""Grounding of words and their thresholds, against slow twins, and what they are for."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmill.ops.pair.tags import ZeroShotTags
from pairmill.ops.whole import word_vectors
from pairmill.ops.whole.ranking import unit
from tests.reference import tags as reference
from tests.worlds.golden import check_golden

SEEDS = st.integers(0, 2**32 - 1)


def scattered(seed: int, n: int, d: int = 6) -> np.ndarray:
    return unit(np.random.default_rng(seed).normal(size=(n, d)))


def shown(seed: int, words: np.ndarray, n: int, noise: float = 0.08) -> tuple[np.ndarray, np.ndarray]:
    """Pictures of random words of ``words``, a little off them, and which word each shows."""
    random = np.random.default_rng(seed)
    which = random.integers(0, len(words), n)
    return unit(words[which] + noise * random.normal(size=(n, words.shape[1]))), which


@given(SEEDS, st.integers(1, 120), st.integers(1, 12))
def test_grounding_is_that_of_a_slow_twin(seed: int, pictures: int, words: int):
    left, right = scattered(seed, pictures), scattered(seed + 1, words)
    expected = reference.grounding(left @ right.T, word_vectors.TOP)
    np.testing.assert_allclose(word_vectors.grounding(left, right), expected, atol=1e-4)


@given(SEEDS, st.integers(1, 250), st.integers(2, 12), st.floats(0, 0.99))
def test_thresholds_are_those_of_a_slow_twin(seed: int, pictures: int, words: int, strict: float):
    left, right = scattered(seed, pictures), scattered(seed + 1, words)
    expected = reference.thresholds(left @ right.T, strict, word_vectors.OWN, word_vectors.ONE_IN)
    np.testing.assert_allclose(word_vectors.tag_thresholds(left, right, strict), expected, atol=2e-4)


def test_thresholds_do_not_depend_on_blocks_or_on_the_order_of_pictures(monkeypatch: pytest.MonkeyPatch):
    left, right = scattered(1, 300), scattered(2, 40)
    whole = word_vectors.tag_thresholds(left, right, 0.7), word_vectors.grounding(left, right)
    monkeypatch.setattr("pairmill.ops.whole.ranking.BLOCK_BYTES", 4 * 300 * 7)
    again = word_vectors.tag_thresholds(left[::-1], right, 0.7), word_vectors.grounding(left[::-1], right)
    np.testing.assert_allclose(whole[0], again[0], atol=1e-4)
    np.testing.assert_allclose(whole[1], again[1], atol=1e-4)


def test_a_word_that_pictures_show_is_grounded_and_one_as_far_from_all_is_not():
    basis = np.eye(20, dtype=np.float32)
    pictures, _ = shown(3, basis[:10], 500)
    found = word_vectors.grounding(pictures, basis)
    assert found[:10].min() > 0.7 and found[10:].max() < 0.4
    near_all = unit(basis[:1] + basis.mean(axis=0) * 30)  # a word like "image"
    assert word_vectors.grounding(pictures, near_all)[0] < found[:10].min()


def test_pictures_of_nothing_in_the_vocabulary_get_no_tag_and_most_others_theirs():
    basis = scattered(11, 60, 64)
    words, absent = basis[:40], basis[40:]
    sample, _ = shown(4, basis, 1000)
    bars = word_vectors.tag_thresholds(sample, words, 0.9)
    tagger = ZeroShotTags(tuple(map(str, range(40))), "{}", 3, tuple(bars.tolist()))
    seen, which = shown(5, words, 400)
    tagged = tagger(seen, lambda _: words)[0]
    assert np.mean([row[:1] == [str(word)] for row, word in zip(tagged, which, strict=True)]) > 0.9
    unseen = tagger(shown(6, absent, 400)[0], lambda _: words)[0]
    assert np.mean([not row for row in unseen]) > 0.8


def test_a_word_that_is_near_everything_has_to_be_nearer():
    basis = scattered(21, 30, 64)
    hub = unit(basis[:1] + 2 * basis.sum(axis=0, keepdims=True) / 30)
    pictures, _ = shown(7, basis, 1000)
    words = np.concatenate([hub, basis[1:]])
    bars = word_vectors.tag_thresholds(pictures, words, 0.7)
    assert bars[0] > np.quantile(bars[1:], 0.9)


def test_stricter_thresholds_are_never_lower_and_no_share_drops_no_runner_up():
    pictures, words = scattered(8, 400), scattered(9, 25)
    bars = [word_vectors.tag_thresholds(pictures, words, strict) for strict in (0.0, 0.4, 0.8, 0.99)]
    assert all((high >= low).all() for low, high in pairwise(bars))
    tagged = ZeroShotTags(tuple(map(str, range(25))), "{}", 25, tuple(bars[0].tolist()))(pictures, lambda _: words)[0]
    assert np.mean([len(row) >= 2 for row in tagged]) > 0.99


def test_one_word_cannot_be_told_apart():
    with pytest.raises(ValueError, match="two or more"):
        word_vectors.tag_thresholds(scattered(1, 200), scattered(2, 1), 0.5)


def test_of_words_the_best_grounded_are_chosen_and_no_phrase_that_adds_nothing():
    words = ["face", "red car", "angry face", "cat", "famous cat", "car", "year", "old year", "dog"]
    values = np.array([0.3, 0.6, 0.5, 0.4, 0.405, 0.7, 0.1, 0.3, 0.4])
    found = word_vectors.best_grounded(words, values, first=1, most=4)
    assert [words[place] for place in found] == ["car", "angry face", "cat", "dog"]
    assert [words[place] for place in word_vectors.best_grounded(words, values, 3, 9)][-2:] == ["old year", "year"]


def test_golden_values_of_these_versions():
    pictures, words = scattered(1, 200), scattered(2, 8)
    found = word_vectors.grounding(pictures, words)
    best = word_vectors.best_grounded(["a", "b a", "c", "d c", "e", "f e", "g", "h g"], found, 1, 5)
    check_golden("grounding", word_vectors.GROUNDING_VERSION, [found, best])
    check_golden("tag_thresholds", word_vectors.THRESHOLDS_VERSION, word_vectors.tag_thresholds(pictures, words, 0.7))
