"""Search the probed clusters for the vectors with the largest dot product, and measure recall.

Optionally only the most similar vector of each group is returned.
"""

from itertools import pairwise

import numpy as np

from pairmill.ops.whole.ranking import blocks, nearest

VERSION = 1  # increase when other vectors are found or in another order, rare ones aside


def top_k(
    queries: np.ndarray, query_clusters: np.ndarray, vectors: np.ndarray, offsets: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Find for each query the ``k`` most similar vectors of the clusters that it probes.

    Similarity is the dot product; the work is one matrix product per cluster and block of its queries. The values do
    not depend on which queries are in the batch.

    Args:
        queries: (n, d).
        query_clusters: (n, probes) int, distinct in a row, -1 for none.
        vectors: (m, d) sorted by cluster; float32, float16 or a memory map.
        offsets: (clusters + 1,); cluster c is ``vectors[offsets[c]:offsets[c + 1]]``.
        k: Number of results per query.

    Returns:
        Rows of ``vectors`` (n, k) int64 and similarities (n, k) float32, best first, ties by the smaller row. If the
        probed clusters hold fewer than k vectors, the missing rows are -1 and their similarities -inf.
    """
    asked = np.asarray(queries, dtype=np.float32)
    ids = np.full((len(asked), k), -1, dtype=np.int64)
    similarities = np.full((len(asked), k), -np.inf, dtype=np.float32)
    probes = np.asarray(query_clusters).shape[1]
    clusters = np.asarray(query_clusters).ravel()
    order = np.argsort(clusters, kind="stable")
    order = order[clusters[order] >= 0]
    borders = np.flatnonzero(np.diff(clusters[order])) + 1
    for start, end in pairwise([0, *borders.tolist(), len(order)] if len(order) else [0]):
        cluster = int(clusters[order[start]])
        first, last = int(offsets[cluster]), int(offsets[cluster + 1])
        if first == last:
            continue
        members = np.asarray(vectors[first:last], dtype=np.float32)
        rows = order[start:end] // probes
        for part in blocks(len(rows), len(members)):
            _merge(ids, similarities, rows[part], *nearest(asked[rows[part]], members, k), first)
    return ids, similarities


def top_k_apart(
    queries: np.ndarray,
    query_clusters: np.ndarray,
    vectors: np.ndarray,
    offsets: np.ndarray,
    k: int,
    groups: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Find for each query the ``k`` most similar groups of vectors, each group by its most similar probed vector.

    The arguments are those of `top_k`, and ``groups`` (m,) int64 >= 0; a vector in no group has a number of its own. If
    the k nearest vectors of a query belong to fewer than k groups, the search is repeated with four times as many,
    until there are k groups or no further vectors.
    """
    ids = np.full((len(queries), k), -1, dtype=np.int64)
    similarities = np.full((len(queries), k), -np.inf, dtype=np.float32)
    probed = np.asarray(query_clusters)
    asked, wide = np.arange(len(queries)), k
    while len(asked):
        found, values = top_k(queries[asked], probed[asked], vectors, offsets, wide)
        ids[asked], similarities[asked] = first_of_groups(found, values, np.where(found < 0, -1, groups[found]), k)
        crowded = (ids[asked, -1] < 0) & (found[:, -1] >= 0)
        asked, wide = asked[crowded], 4 * wide
    return ids, similarities


def first_of_groups(
    ids: np.ndarray, similarities: np.ndarray, groups: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Select in each row the first vector of every group, at most ``k``: (ids (n, k), similarities (n, k)).

    The inputs are (n, w), sorted best first; a group of -1 marks a missing result. Missing outputs are -1 and -inf.
    """
    order = np.argsort(groups, axis=1, kind="stable")
    in_order = np.take_along_axis(groups, order, axis=1)
    starts = np.ones(groups.shape, dtype=bool)
    starts[:, 1:] = in_order[:, 1:] != in_order[:, :-1]
    first = np.zeros(groups.shape, dtype=bool)
    np.put_along_axis(first, order, starts & (in_order >= 0), axis=1)
    place = np.cumsum(first, axis=1) - 1
    row, column = np.nonzero(first & (place < k))
    kept, values = np.full((len(ids), k), -1, dtype=np.int64), np.full((len(ids), k), -np.inf, dtype=np.float32)
    kept[row, place[row, column]] = ids[row, column]
    values[row, place[row, column]] = similarities[row, column]
    return kept, values


def _merge(
    ids: np.ndarray, similarities: np.ndarray, rows: np.ndarray, found: np.ndarray, values: np.ndarray, first: int
) -> None:
    """Merge one cluster's results into the results of ``rows``; a row occurs once, since its clusters are distinct."""
    k = ids.shape[1]
    all_ids = np.concatenate([ids[rows], found + first], axis=1)
    all_values = np.concatenate([similarities[rows], values], axis=1)
    order = np.lexsort((all_ids, -all_values), axis=1)[:, :k]
    ids[rows] = np.take_along_axis(all_ids, order, axis=1)
    similarities[rows] = np.take_along_axis(all_values, order, axis=1)


def recall_at_k(found_similarities: np.ndarray, exact_similarities: np.ndarray, k: int) -> float:
    """Return the share of the exact top ``k`` that was found, [0, 1]; both inputs are (n, >= k), best first.

    A hit is a found similarity that is at least the exact k-th similarity minus 1e-4: another vector as near is as
    good. Missing results are -inf. A query with fewer than k exact results counts only those; the recall is 1.0 if
    there is nothing to find.
    """
    exact = np.asarray(exact_similarities, dtype=np.float64)[:, :k]
    found = np.asarray(found_similarities, dtype=np.float64)[:, :k]
    present = np.isfinite(exact)
    if not present.any():
        return 1.0
    last = np.where(present, exact, np.inf).min(axis=1, keepdims=True)
    hits = (np.isfinite(found) & (found >= last - 1e-4)).sum(axis=1)
    wanted = present.sum(axis=1)
    return float(np.minimum(hits, wanted).sum() / wanted.sum())
