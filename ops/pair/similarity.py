"""Compute the cosine similarity of images and texts from their CLIP vectors."""

import numpy as np

VERSION = 1  # increase when the same vectors give another similarity, rare ones aside


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
