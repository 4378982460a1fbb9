"""Find the vectors with the largest dot product with one query, in one pass over a memory map."""

from __future__ import annotations

import numpy as np

AT_ONCE = 16_384  # rows converted to float32 at once: 32 MB of 512 numbers, which stays near the cache


def most_similar(query: np.ndarray, vectors: np.ndarray, k: int) -> np.ndarray:
    """Return the rows (n,) int64 of the ``k`` most similar ``vectors``, best first; ties by the smaller row.

    Args:
        query: (d,) float32.
        vectors: (n, d) float16 or float32, maybe a memory map.
        k: Number of results; fewer if there are fewer vectors.
    """
    products = np.empty(len(vectors), np.float32)
    for start in range(0, len(vectors), AT_ONCE):
        block = np.asarray(vectors[start : start + AT_ONCE], np.float32)
        np.matmul(block, query, out=products[start : start + len(block)])
    k = min(k, len(products))
    if k == 0:
        return np.empty(0, np.int64)
    best = np.argpartition(-products, k - 1)[:k]
    return best[np.lexsort((best, -products[best]))].astype(np.int64)
