"""Compute the cosine similarity of pictures and texts from their CLIP vectors."""

from __future__ import annotations

import numpy as np

VERSION = 1  # counts up when the same vectors give another similarity


def similarity(image_vectors: np.ndarray, text_vectors: np.ndarray) -> np.ndarray:
    """Compute the cosine of row i of one with row i of the other, (n,) float32 in [-1, 1]; both (n, d), of length 1.

    A row of zeros (no vector) has similarity 0. Compare within one CLIP model only: 0.25 is high for one, low for
    another. Raises ValueError when the shapes differ.
    """
    left, right = np.asarray(image_vectors, dtype=np.float32), np.asarray(text_vectors, dtype=np.float32)
    if left.shape != right.shape:
        raise ValueError(f"image vectors {left.shape} against text vectors {right.shape}")
    return np.clip((left * right).sum(axis=1), -1.0, 1.0)


def max_similarity(image_vectors: np.ndarray, text_vectors: np.ndarray, owners: np.ndarray) -> np.ndarray:
    """Compute each picture's best similarity among its texts, (n,) float32; NaN for a picture without one.

    ``text_vectors`` (m, d) and ``owners`` (m,): the picture's row that each text belongs to.
    """
    best = np.full(len(image_vectors), -np.inf, dtype=np.float32)
    np.maximum.at(best, owners, similarity(np.asarray(image_vectors)[owners], text_vectors))
    best[np.isneginf(best)] = np.nan
    return best
