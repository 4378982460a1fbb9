import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmill.ops.pair.tags import ZeroShotTags
from tests.reference import tags as reference
from tests.worlds.golden import check_golden

WORDS = ("apple", "boat", "cat", "dog")


def embed(texts: list[str]) -> np.ndarray:
    """Each word of the vocabulary has an axis of its own."""
    return np.array([[float(word in text) for word in WORDS] for text in texts], dtype=np.float32)


PICTURES = np.array([[0.1, 0.9, 0.2, 0.4], [1, 0, 0, 0], [0.5, 0.5, 0.5, 0.5]], dtype=np.float32)


def test_the_nearest_words_come_best_first_with_their_similarity():
    tags, similarities = ZeroShotTags(WORDS, top_k=2)(PICTURES, embed)
    assert tags[:2] == [["boat", "dog"], ["apple", "boat"]]
    assert similarities[:2] == [[0.9, 0.4], [1.0, 0.0]]


def test_ties_go_to_the_earlier_word():
    assert ZeroShotTags(WORDS, top_k=4)(PICTURES, embed)[0][2] == list(WORDS)


def test_the_words_stand_in_the_template_and_are_embedded_once():
    asked: list[str] = []

    def listening(texts: list[str]) -> np.ndarray:
        asked.extend(texts)
        return embed(texts)

    tagger = ZeroShotTags(WORDS, template="a drawing of a {}, in ink")
    tagger(PICTURES, listening)
    tagger(PICTURES, listening)
    assert asked == [f"a drawing of a {word}, in ink" for word in WORDS]


def test_a_vocabulary_shorter_than_top_k_gives_all_of_its_words():
    tags, similarities = ZeroShotTags(("cat", "boat"), top_k=5)(np.eye(4, dtype=np.float32)[:1], embed)
    assert tags == [["cat", "boat"]] and len(similarities[0]) == 2


def test_no_pictures_have_no_tags():
    assert ZeroShotTags(WORDS)(np.empty((0, 4), dtype=np.float32), embed) == ([], [])


def test_it_is_the_same_op_before_and_after_use_and_travels_without_vectors():
    tagger = ZeroShotTags(WORDS)
    tagger(PICTURES, embed)
    assert tagger == ZeroShotTags(WORDS) and hash(tagger) == hash(ZeroShotTags(WORDS))
    sent = pickle.loads(pickle.dumps(tagger))
    assert sent == tagger and sent(PICTURES, embed) == tagger(PICTURES, embed)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"vocabulary": ()}, "empty"),
        ({"vocabulary": ("cat", " ")}, "empty word"),
        ({"vocabulary": ("cat", "dog", "cat")}, "cat more than once"),
        ({"vocabulary": WORDS, "template": "a photo"}, "needs one {}"),
        ({"vocabulary": WORDS, "thresholds": (0.5,)}, "1 thresholds for 4 words"),
    ],
)
def test_a_vocabulary_or_template_that_makes_no_sense_is_refused(arguments: dict, message: str):
    with pytest.raises(ValueError, match=message):
        ZeroShotTags(**arguments)


def test_golden_values_of_this_version():
    tagger = ZeroShotTags(WORDS, top_k=3)
    check_golden("zero_shot_tags", tagger.version, tagger(PICTURES, embed))


def test_golden_values_with_thresholds_of_this_version():
    tagger = ZeroShotTags(WORDS, top_k=3, thresholds=(0.6, 0.5, 0.1, 0.45))
    check_golden("zero_shot_tags_with_thresholds", tagger.version, tagger(PICTURES, embed))


def test_with_thresholds_a_picture_has_the_words_that_reach_theirs_or_none():
    tagger = ZeroShotTags(WORDS, thresholds=(0.6, 0.85, 0.1, 0.4))
    tags, similarities = tagger(np.vstack([PICTURES, np.zeros((1, 4), np.float32)]), embed)
    assert tags == [["boat", "dog", "cat"], ["apple"], ["cat", "dog"], []]
    assert similarities == [[0.9, 0.4, 0.2], [1.0], [0.5, 0.5], []]


@given(st.integers(0, 2**32 - 1), st.integers(0, 40), st.integers(1, 30), st.integers(1, 6), st.booleans())
def test_tags_are_those_of_a_slow_twin(seed: int, pictures: int, words: int, top_k: int, calibrated: bool):
    random = np.random.default_rng(seed)
    vectors = np.round(random.normal(size=(pictures, 5)), 1).astype(np.float32)  # coarse: with ties
    texts = np.round(random.normal(size=(words, 5)), 1).astype(np.float32)
    bars = np.round(random.normal(size=words), 1).tolist() if calibrated else []
    tagger = ZeroShotTags(tuple(map(str, range(words))), "{}", top_k, tuple(bars))
    found = tagger(vectors, lambda _: texts)[0]
    assert [[int(word) for word in row] for row in found] == reference.tags(vectors @ texts.T, bars or None, top_k)


def test_a_picture_has_the_same_tags_in_any_company(monkeypatch: pytest.MonkeyPatch):
    random = np.random.default_rng(5)
    vectors = random.normal(size=(50, 4)).astype(np.float32)
    tagger = ZeroShotTags(WORDS, top_k=2, thresholds=(0.5,) * 4)
    whole = tagger(vectors, embed)
    monkeypatch.setattr("pairmill.ops.pair.tags.BLOCK_BYTES", 4 * 4 * 7)
    assert tagger(vectors, embed) == whole
    turned = tagger(vectors[::-1], embed)
    assert (turned[0][::-1], turned[1][::-1]) == whole
