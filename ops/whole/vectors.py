"""What the whole-lake algorithms share about vectors: unit length, and top-k that no rounding can reorder."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

# Rows of a matmul block are chosen so that its result stays near this size.
BLOCK_BYTES = 64 << 20
# A matmul's last bits depend on its shape, by less than ROUNDING for vectors of length 1. So a few more candidates than
# asked are taken from it, and their products are done again row by row, which gives equal bits for equal vectors in any
# block, order or number of threads.
ROUNDING = 1e-5
SPARE = 8


def unit(vectors: np.ndarray) -> np.ndarray:
    """(n, d) of any float type to float32 rows of length 1; a row of zeros stays zeros."""
    rows = np.asarray(vectors, dtype=np.float32)
    lengths = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    return rows / np.where(lengths > 0, lengths, 1)


def blocks(n: int, columns: int) -> Iterator[slice]:
    """Slices of ``range(n)`` whose float32 product with ``columns`` columns stays near BLOCK_BYTES."""
    step = max(1, BLOCK_BYTES // (4 * max(1, columns)))
    return (slice(start, min(n, start + step)) for start in range(0, n, step))


def products(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Dot products along the last axis, float32; the same bits for the same two vectors wherever they stand."""
    return (left * right).sum(axis=-1, dtype=np.float32)


def nearest(queries: np.ndarray, vectors: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The ``min(k, len(vectors))`` rows of ``vectors`` with the largest dot product, for a block of queries.

    (indices int64, products float32), best first, ties by the smaller index; both inputs float32.
    """
    k = min(k, len(vectors))
    taken = min(k + SPARE, len(vectors))
    rough = queries @ vectors.T
    indices = np.argpartition(-rough, taken - 1, axis=1)[:, :taken]
    best, exact = _ranked(queries, vectors, indices, k)
    if taken < len(vectors):
        # Where the last candidate taken is as near as the k-th, others as near may have been left out.
        values = np.sort(np.take_along_axis(rough, indices, axis=1), axis=1)
        for row in np.flatnonzero(values[:, 0] >= values[:, taken - k] - ROUNDING):
            near = np.flatnonzero(rough[row] >= values[row, taken - k] - ROUNDING)
            best[row], exact[row] = (found[0] for found in _ranked(queries[row : row + 1], vectors, near[None], k))
    return best, exact


def _ranked(queries: np.ndarray, vectors: np.ndarray, indices: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The best ``k`` of each row's candidates ``indices`` (n, m), by products that do not depend on their company."""
    exact = np.empty(indices.shape, dtype=np.float32)
    for part in blocks(len(queries), indices.shape[1] * queries.shape[1]):
        exact[part] = products(queries[part, None, :], vectors[indices[part]])
    order = np.lexsort((indices, -exact), axis=1)[:, :k]
    return np.take_along_axis(indices, order, axis=1).astype(np.int64), np.take_along_axis(exact, order, axis=1)
