import pickle

import numpy as np
import pytest

from ops.pair.tags import ZeroShotTags
from tests.ops.golden import check_golden

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
    ],
)
def test_a_vocabulary_or_template_that_makes_no_sense_is_refused(arguments: dict, message: str):
    with pytest.raises(ValueError, match=message):
        ZeroShotTags(**arguments)


def test_golden_values_of_this_version():
    tagger = ZeroShotTags(WORDS, top_k=3)
    check_golden("zero_shot_tags", tagger.version, tagger(PICTURES, embed))
