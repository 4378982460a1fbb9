"""Pairs of like vectors, looked for inside clusters."""

from __future__ import annotations

import numpy as np

from ops.whole.kmeans import assign
from ops.whole.vectors import ROUNDING, blocks, products


def semantic_edges(
    vectors: np.ndarray,
    is_new: np.ndarray,
    centroids: np.ndarray,
    threshold: float,
    probes: int = 2,
    most: int = 1_000,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(i, j, similarity): int64, int64, float32, i < j, sorted; pairs of cosine >= ``threshold`` with a new end.

    ``vectors`` (n, d) of length 1, float32 or float16; ``is_new`` (n,) bool; ``centroids`` (k, d). Two vectors are
    compared when they share one of their ``probes`` nearest clusters, so a pair on a border may be missed: more probes
    find more. A row with more than ``most`` neighbours in a cluster keeps the nearest: its component is larger than
    ``most`` anyway, and with ``most`` at least the largest group allowed, no group that is allowed loses an edge.
    Memory is bounded by a block of products and the edges.
    """
    near = assign(vectors, centroids, probes)
    rows = np.repeat(np.arange(len(vectors)), near.shape[1])
    return edges_within(vectors, is_new, rows, near.ravel(), threshold, most)


def edges_within(
    vectors: np.ndarray, is_new: np.ndarray, rows: np.ndarray, clusters: np.ndarray, threshold: float, most: int = 1_000
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """As ``semantic_edges``, with the clusters given: row ``rows[m]`` of ``vectors`` is a member of ``clusters[m]``.

    A row may be in several clusters; a pair that meets twice is reported once.
    """
    if len(vectors) == 0 or not np.any(is_new):
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)
    is_new = np.asarray(is_new, dtype=bool)
    order = np.lexsort((rows, clusters))
    clusters, rows = clusters[order], rows[order]
    starts = np.flatnonzero(np.r_[True, np.diff(clusters) != 0])
    codes = [np.empty(0, dtype=np.int64)]
    for start, end in zip(starts, np.r_[starts[1:], len(rows)], strict=True):
        codes.extend(_inside(vectors, rows[start:end], is_new, threshold, most))
    pairs = np.unique(np.concatenate(codes))
    i, j = pairs // len(vectors), pairs % len(vectors)
    similarity = np.empty(len(pairs), dtype=np.float32)
    for part in blocks(len(pairs), 2 * vectors.shape[1]):
        similarity[part] = products(vectors[i[part]].astype(np.float32), vectors[j[part]].astype(np.float32))
    kept = similarity >= threshold
    return i[kept], j[kept], similarity[kept]


def _inside(vectors: np.ndarray, members: np.ndarray, is_new: np.ndarray, threshold: float, most: int):
    """Yield i * n + j of the like pairs of one cluster, i < j; ``members`` are rows in ascending order."""
    new = np.flatnonzero(is_new[members])
    if len(new) == 0 or len(members) < 2:
        return
    n = len(vectors)
    block = np.asarray(vectors[members], dtype=np.float32)
    for part in blocks(len(new), len(members)):
        places = new[part]
        products_here = block[places] @ block.T
        products_here[np.arange(len(places)), places] = -np.inf
        alike = products_here >= threshold - ROUNDING
        crowded = np.flatnonzero(alike.sum(axis=1) > most)
        for row in crowded:
            nearest = np.argsort(-products_here[row], kind="stable")[:most]
            alike[row] = False
            alike[row, nearest] = True
        left, right = np.nonzero(alike)
        left, right = members[places[left]], members[right]
        yield np.minimum(left, right) * n + np.maximum(left, right)
