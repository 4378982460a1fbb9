"""Find pairs of vectors inside clusters whose cosine similarity reaches a threshold."""

import numpy as np

from pairmill.ops.whole.ranking import ROUNDING, blocks, products

VERSION = 1  # increase when other pairs are found, rare ones aside
# Rows per block. In a cluster of 400 new rows two thirds of the square are computed, in larger ones nearly half;
# smaller blocks would slow down the matrix product.
ROWS = 128


def edges_within(
    vectors: np.ndarray, is_new: np.ndarray, rows: np.ndarray, clusters: np.ndarray, threshold: float, most: int = 1_000
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find the pairs of one cluster with a cosine >= ``threshold`` of which at least one is new.

    Only members of one cluster are compared, so a pair across a border may be missed. A row may be in several clusters;
    a pair in several clusters is reported once. A row with more than ``most`` similar rows after it in a cluster keeps
    the nearest ``most``: its component is larger than ``most`` anyway, so with ``most`` at least the largest group
    allowed, no allowed group loses an edge. Memory is bounded by one block of products plus the edges.

    ``vectors`` (n, d) of length 1 are float32 or float16, ``is_new`` is (n,) bool. Vector ``rows[m]`` is a member of
    cluster ``clusters[m]``. Returns (i, j, similarity) as int64, int64, float32, with i < j, sorted.
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
    """Yield i * n + j for the similar pairs i < j of one cluster; ``members`` are rows in ascending order."""
    new = is_new[members]
    n_new = int(new.sum())
    if n_new == 0 or len(members) < 2:
        return
    n = len(vectors)
    members = np.concatenate([members[new], members[~new]])
    block = np.asarray(vectors[members], dtype=np.float32)
    for part in blocks(n_new, len(members), ROWS):
        # Each pair once: a new row is compared with the rows after it, first the new ones, then the old ones.
        later = block[part] @ block[part.start :].T
        later[:, : len(later)][np.tri(len(later), dtype=bool)] = -np.inf
        # Flattened, because numpy finds few non-zero values of a matrix at a tenth of the speed.
        left, right = np.divmod(np.flatnonzero(later >= threshold - ROUNDING), later.shape[1])
        for row in np.flatnonzero(np.bincount(left) > most) if len(left) > most else ():
            nearest = np.argsort(-later[row], kind="stable")[:most]
            others = left != row
            left, right = np.r_[left[others], np.full(most, row)], np.r_[right[others], nearest]
        left, right = members[part.start + left], members[part.start + right]
        yield np.minimum(left, right) * n + np.maximum(left, right)
