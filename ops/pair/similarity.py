"""Compute the cosine similarity of images and texts from their CLIP vectors."""

from collections.abc import Sequence

import numpy as np

VERSION = 1  # increase when the same vectors give another similarity, rare ones aside
# Images with a higher cosine count as copies. Recoloured copies have 0.85 to 0.965: some of them count as others.
COPIES = 0.95
BLOCK = 512  # images among which another is chosen: 2 MB of cosines


def similarity(image_vectors: np.ndarray, text_vectors: np.ndarray) -> np.ndarray:
    """Compute the cosine of each image vector with the text vector of the same row: (n,) float32 in [-1, 1].

    Both inputs are (n, d) with rows of length 1; a row of zeros (no vector) has similarity 0. Compare values of one
    CLIP model only: 0.25 is high for one model, low for another. Raises ValueError if the shapes differ.
    """
    left, right = np.asarray(image_vectors, dtype=np.float32), np.asarray(text_vectors, dtype=np.float32)
    if left.shape != right.shape:
        raise ValueError(f"image vectors {left.shape} against text vectors {right.shape}")
    return np.clip((left * right).sum(axis=1), -1.0, 1.0)


def max_similarity(image_vectors: np.ndarray, text_vectors: np.ndarray, owners: np.ndarray) -> np.ndarray:
    """Compute each image's highest similarity with its texts: (n,) float32; NaN for an image without text.

    ``text_vectors`` is (m, d); ``owners`` (m,) holds for each text the row of its image.
    """
    best = np.full(len(image_vectors), -np.inf, dtype=np.float32)
    np.maximum.at(best, owners, similarity(np.asarray(image_vectors)[owners], text_vectors))
    best[np.isneginf(best)] = np.nan
    return best


def similarity_to_others(image_vectors: np.ndarray, text_vectors: np.ndarray, texts: Sequence[str]) -> np.ndarray:
    """Compute each image's cosine with the text of the most similar other image: (n,) float32; NaN if there is none.

    Row i of ``text_vectors`` (n, d) belongs to ``texts[i]``, the text of image i. Others are images of the same BLOCK
    of rows, but copies and images with the same text. Images and texts without a vector (zeros) are left out.
    """
    images, words = np.asarray(image_vectors, dtype=np.float32), np.asarray(text_vectors, dtype=np.float32)
    found = np.full(len(images), np.nan, dtype=np.float32)
    for first in range(0, len(images), BLOCK):
        rows = slice(first, first + BLOCK)
        near = images[rows] @ images[rows].T
        number_of = {text: number for number, text in enumerate(texts[rows])}
        numbers = np.array([number_of[text] for text in texts[rows]])
        known = np.logical_and.outer(np.any(images[rows], axis=1), np.any(words[rows], axis=1))
        near[(near > COPIES) | np.equal.outer(numbers, numbers) | ~known] = -np.inf
        of = near.argmax(1)
        there = np.isfinite(near.max(1))
        found[rows] = np.where(there, similarity(images[rows], words[rows][of]), np.nan)
    return found
