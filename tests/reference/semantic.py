"""Slow twin of ops/whole/semantic.py: the cosine of every pair."""

import numpy as np


def all_pairs(vectors: np.ndarray, threshold: float) -> dict[tuple[int, int], float]:
    """{(i, j): cosine} of all pairs i < j of cosine >= ``threshold``."""
    rows = vectors.astype(np.float64)
    found = {}
    for i in range(len(rows)):
        for j in range(i + 1, len(rows)):
            cosine = float(rows[i] @ rows[j])
            if cosine >= threshold:
                found[i, j] = cosine
    return found
