import numpy as np
import pytest

from pairmill.ops.pair.similarity import max_similarity, similarity


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
