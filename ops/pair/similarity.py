"""Compute the cosine similarity of images and texts from their CLIP vectors, and s-CLIPLoss (arXiv 2405.19547).

A cosine is high, too, where a text or a picture fits everything. s-CLIPLoss takes off how well each fits a batch: it is
minus a pair's loss in CLIP's training, scaled.
"""

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


LOSS_VERSION = 1  # increase when the same vectors and batch give another score, rare ones aside
TEMPERATURE = 0.01  # of the paper, and of trained CLIPs
ROWS = 4_096  # rows of one product: with a batch of 2,048 pairs, 64 MB of float64


def s_cliploss(
    cosines: np.ndarray, sums: tuple[np.ndarray, np.ndarray], held: tuple[np.ndarray, np.ndarray], n: int
) -> np.ndarray:
    """Compute the score of each pair within a batch of ``n`` pairs and the pair itself: (m,) float64.

    ``sums``: `exp_sums` of its picture over the batch's texts, and of its text over the batch's pictures. ``held``:
    whether the batch holds its text, and its picture; what it holds is not added again. All are (m,).
    """
    own = np.exp((cosines - 1.0) / TEMPERATURE)
    means = [(each + np.where(known, 0.0, own)) / (n + ~known) for each, known in zip(sums, held, strict=True)]
    return cosines - TEMPERATURE / 2 * (np.log(means[0]) + np.log(means[1]))


def exp_sums(vectors: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Sum exp((cosine - 1) / TEMPERATURE) of each row of ``vectors`` (n, d) over the rows of ``others``: (n,) float64.

    Both have rows of length 1.
    """
    sums = np.zeros(len(vectors))
    for start in range(0, len(vectors), ROWS):
        cosines = (vectors[start : start + ROWS] @ others.T).astype(np.float64)
        sums[start : start + ROWS] = np.exp((cosines - 1.0) / TEMPERATURE).sum(axis=1)
    return sums
