"""Find pairs of similar vectors inside clusters."""

from __future__ import annotations

import numpy as np

from pairmill.ops.whole.ranking import ROUNDING, blocks, products

VERSION = 1  # counts up when other pairs are found
# Rows compared at once. Of a cluster of 400 new ones two thirds of the square are computed, of larger ones nearly half;
# fewer rows at once would cost the matrix product its speed.
ROWS = 128


def edges_within(
    vectors: np.ndarray, is_new: np.ndarray, rows: np.ndarray, clusters: np.ndarray, threshold: float, most: int = 1_000
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find the pairs of cosine >= ``threshold`` with a new end.

    Returns (i, j, similarity), int64, int64, float32, i < j, sorted. ``vectors`` (n, d) of length 1, float32 or
    float16; ``is_new`` (n,) bool; row ``rows[m]`` of ``vectors`` is a member of ``clusters[m]``. Only members of one
    cluster are compared, so a pair on a border may be missed; a row may be in several clusters, and a pair that meets
    twice is reported once. A row with more than ``most`` neighbours after it in a cluster keeps the nearest of those:
    its component is larger than ``most`` anyway, and with ``most`` at least the largest group allowed, no group that is
    allowed loses an edge. Memory is bounded by a block of products and the edges.
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
    """Yield i * n + j of the similar pairs of one cluster, i < j; ``members`` are rows in ascending order."""
    new = is_new[members]
    n_new = int(new.sum())
    if n_new == 0 or len(members) < 2:
        return
    n = len(vectors)
    members = np.concatenate([members[new], members[~new]])
    block = np.asarray(vectors[members], dtype=np.float32)
    for part in blocks(n_new, len(members), ROWS):
        # Each pair once: a new row is compared with those that stand after it, first new ones, then known ones.
        later = block[part] @ block[part.start :].T
        later[:, : len(later)][np.tri(len(later), dtype=bool)] = -np.inf
        # Flat, since numpy looks for the few set ones of a matrix at a tenth of the speed.
        left, right = np.divmod(np.flatnonzero(later >= threshold - ROUNDING), later.shape[1])
        for row in np.flatnonzero(np.bincount(left) > most) if len(left) > most else ():
            nearest = np.argsort(-later[row], kind="stable")[:most]
            others = left != row
            left, right = np.r_[left[others], np.full(most, row)], np.r_[right[others], nearest]
        left, right = members[part.start + left], members[part.start + right]
        yield np.minimum(left, right) * n + np.maximum(left, right)
