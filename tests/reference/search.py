"""Slow twin of ops/whole/search.py and of assignment: one query and one vector at a time, in double precision."""

from collections.abc import Sequence

import numpy as np


def best(query: np.ndarray, vectors: np.ndarray, candidates: Sequence[int], k: int) -> list[tuple[int, float]]:
    """The ``k`` best (row, similarity) of ``candidates``, best first, ties by the smaller row."""
    scored = [(row, float(np.dot(query.astype(np.float64), vectors[row].astype(np.float64)))) for row in candidates]
    return sorted(scored, key=lambda pair: (-pair[1], pair[0]))[:k]


def fewest(queries: np.ndarray, nearest: np.ndarray, vectors: np.ndarray, clusters: Sequence[int],
           groups: Sequence[int], k: int, recall: float) -> int:  # fmt: skip
    """The fewest probes that find ``recall`` of the ``k`` nearest groups: every number of probes is searched in turn.

    A group is found by a member that is as near as the k-th nearest group, as in `recall_at_k`.
    ``nearest`` (n, p) are the clusters of each query, nearest first; ``clusters`` and ``groups`` are of the vectors.
    """

    def found(query: int, probes: int) -> list[float]:
        rows = [row for row in range(len(vectors)) if clusters[row] in nearest[query][:probes]]
        nearest_of_group: dict[int, float] = {}
        for row, similarity in best(queries[query], vectors, rows, len(rows)):
            nearest_of_group.setdefault(groups[row], similarity)
        return list(nearest_of_group.values())[:k]

    most = nearest.shape[1]
    exact = [found(query, most) for query in range(len(queries))]
    for probes in range(1, most):
        hits = sum(similarity >= exact[query][-1] - 1e-4 for query in range(len(queries))
                   for similarity in found(query, probes))  # fmt: skip
        if hits / sum(map(len, exact)) >= recall:
            return probes
    return most
