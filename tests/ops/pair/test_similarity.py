import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmill.ops.pair import similarity as module
from pairmill.ops.pair.similarity import COPIES, max_similarity, similarity, similarity_to_others


def unit(rows: list[list[float]]) -> np.ndarray:
    array = np.array(rows, dtype=np.float32)
    return array / np.linalg.norm(array, axis=1, keepdims=True)


def test_each_picture_is_compared_with_its_own_text():
    pictures, texts = unit([[1, 0], [1, 1], [0, 1]]), unit([[1, 0], [1, 0], [0, -1]])
    np.testing.assert_allclose(similarity(pictures, texts), [1, 0.5**0.5, -1], atol=1e-6)
    assert similarity(pictures, texts).dtype == np.float32


def test_stored_half_precision_vectors_are_compared_in_single_precision():
    pictures = unit(np.random.default_rng(0).normal(size=(50, 256)).tolist())
    close = similarity(pictures.astype(np.float16), pictures.astype(np.float16))
    np.testing.assert_allclose(close, 1, atol=1e-3)
    assert (similarity(pictures, pictures) <= 1).all()


def test_a_row_of_zeros_is_like_nothing():
    assert similarity(np.zeros((1, 3)), np.ones((1, 3))).tolist() == [0]


def test_different_numbers_of_pictures_and_texts_are_a_bug_of_the_caller():
    with pytest.raises(ValueError, match=r"\(1, 3\) against text vectors \(2, 3\)"):
        similarity(np.zeros((1, 3)), np.zeros((2, 3)))


def test_the_best_text_of_each_picture_counts_and_none_is_nan():
    pictures, texts = unit([[1, 0], [0, 1], [1, 1]]), unit([[1, 0], [0, 1], [1, 1]])
    best = max_similarity(pictures, texts, np.array([1, 1, 0]))
    np.testing.assert_allclose(best[:2], [0.5**0.5, 1], atol=1e-6)
    assert np.isnan(best[2])


@given(st.integers(0, 40), st.integers(0, 2**32 - 1), st.sampled_from([1, 3, 512]))
def test_a_text_of_another_is_that_of_the_most_similar_picture_that_is_no_copy(n: int, seed: int, block: int):
    draw = np.random.default_rng(seed)
    pictures, texts = (unit(draw.normal(size=(n, 3)).tolist() or [[1.0]])[:n] for _ in range(2))
    named = [f"text {number}" for number in draw.integers(0, 6, n)]
    for vectors in (pictures, texts):
        vectors[draw.random(n) < 0.2] = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", block)
        found = similarity_to_others(pictures, texts, named)
    for row in range(n):
        others = [
            other
            for other in range(n)
            if other // block == row // block and named[other] != named[row] and texts[other].any()
            if pictures[row].any() and pictures[row] @ pictures[other] <= COPIES
        ]
        if others:
            nearest = max(others, key=lambda other: pictures[row] @ pictures[other])
            assert abs(found[row] - pictures[row] @ texts[nearest]) < 1e-6 or not pictures[nearest].any()
        else:
            assert np.isnan(found[row])
