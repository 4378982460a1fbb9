"""Slow twin of ops/whole/search.py and of assignment: one query and one vector at a time, in double precision."""

from collections.abc import Sequence

import numpy as np


def best(query: np.ndarray, vectors: np.ndarray, candidates: Sequence[int], k: int) -> list[tuple[int, float]]:
    """The ``k`` best (row, similarity) of ``candidates``, best first, ties by the smaller row."""
    scored = [(row, float(np.dot(query.astype(np.float64), vectors[row].astype(np.float64)))) for row in candidates]
    return sorted(scored, key=lambda pair: (-pair[1], pair[0]))[:k]
