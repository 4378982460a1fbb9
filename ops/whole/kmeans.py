"""Train spherical k-means (unit centroids for unit vectors), and assign vectors to their nearest centroids."""

from dataclasses import dataclass

import numpy as np

from pairmill.ops.whole.ranking import blocks, nearest, unit
from pairmill.ops.whole.search import top_k

TRAIN_VERSION = 1  # increase when the same vectors give other centroids, rare ones aside
ASSIGN_VERSION = 1  # increase when a vector is assigned to other centroids, rare ones aside
# The advice of faiss: more points per centroid add time and hardly any quality.
POINTS_PER_CENTROID = 256
# Above this many centroids one k-means costs more than sqrt(K) small ones: K = 2M makes 1,414 groups of some 1,414.
FLAT_LIMIT = 65_536
# Steps over all groups after the two levels. On 4,000 clusters of 150,000 topical vectors the mean cosine to the
# assigned centroid was 0.801 before these steps, 0.813 after, and 0.811 by one flat k-means of 6 steps; on random
# directions without topics it was 0.689, 0.754, 0.767.
REFINEMENTS = 2


def train(vectors: np.ndarray, k: int, seed: int = 0, iterations: int = 10, flat_limit: int = FLAT_LIMIT) -> np.ndarray:
    """Train centroids on ``vectors`` (n, d), any float type or a memory map: (min(k, n), d) float32 of length 1.

    The same input and seed give the same centroids. At most 256 points per centroid are used, chosen by ``seed``; the
    caller sorts the rows by an id's hash, so that the choice does not depend on the order of arrival. Equal vectors may
    give equal centroids; the later ones of these get no members. Above ``flat_limit`` centroids, training has two
    levels: sqrt(k) groups, then in each group a share of the k proportional to its points (one group in memory at a
    time), then two steps over all centroids. Raises ValueError if ``k`` is less than 1, or there are no vectors.
    """
    if k < 1 or len(vectors) < 1:
        raise ValueError(f"k-means of {len(vectors)} vectors into {k} clusters; both must be at least 1")
    if k >= len(vectors):
        return unit(vectors)
    if k <= flat_limit:
        return _flat(_sample(vectors, k * POINTS_PER_CENTROID, seed), k, seed, iterations)
    groups = round(k**0.5)
    heads = _flat(_sample(vectors, groups * POINTS_PER_CENTROID, seed), groups, seed, iterations)
    of_group = assign(vectors, heads)[:, 0]
    order = np.argsort(of_group, kind="stable")
    sizes = np.bincount(of_group, minlength=groups)
    ends = np.cumsum(sizes)
    shares = _shares(sizes, k)
    parts = [
        train(vectors[np.sort(order[end - size : end])], int(share), seed, iterations, int(share))
        for end, size, share in zip(ends, sizes, shares, strict=True)
        if share
    ]
    centroids = np.concatenate(parts)
    for _ in range(REFINEMENTS):
        centroids = _refine(vectors, centroids, seed)
    return centroids


def _refine(vectors: np.ndarray, centroids: np.ndarray, seed: int) -> np.ndarray:
    """Run one k-means step over all groups: a vector near a border may be nearer to another group's centroid."""
    router = build_router(centroids, seed)
    sums = np.zeros(centroids.shape, dtype=np.float64)
    for part in blocks(len(vectors), vectors.shape[1]):
        rows = unit(vectors[part])
        nearest_one = assign(rows, centroids, 1, router)[:, 0]
        order = np.argsort(nearest_one, kind="stable")
        present, starts = np.unique(nearest_one[order], return_index=True)
        sums[present] += np.add.reduceat(rows[order].astype(np.float64), starts, axis=0)
    return np.where((sums != 0).any(axis=1, keepdims=True), unit(sums), centroids)


def _flat(vectors: np.ndarray, k: int, seed: int, iterations: int) -> np.ndarray:
    """Train k-means on one level with faiss, for ``iterations`` steps."""
    import faiss

    means = faiss.Kmeans(
        vectors.shape[1],
        k,
        niter=iterations,
        seed=seed + 1,  # faiss ignores a seed of 0
        spherical=True,
        min_points_per_centroid=1,
        max_points_per_centroid=POINTS_PER_CENTROID,
    )
    means.train(unit(vectors))
    return unit(np.asarray(means.centroids))


def _sample(vectors: np.ndarray, most: int, seed: int) -> np.ndarray:
    """Return at most ``most`` vectors, chosen at random by ``seed``, in their order."""
    if len(vectors) <= most:
        return np.asarray(vectors)
    rows = np.random.default_rng(seed).choice(len(vectors), size=most, replace=False)
    return vectors[np.sort(rows)]


def _shares(sizes: np.ndarray, k: int) -> np.ndarray:
    """Divide ``k`` among groups by size, largest remainder first: 1 to its size for a group with points."""
    wanted = sizes * (k / sizes.sum())
    shares = np.minimum(np.maximum(np.floor(wanted).astype(np.int64), sizes > 0), sizes)
    while (missing := k - shares.sum()) != 0:
        step = 1 if missing > 0 else -1
        room = shares < sizes if step > 0 else shares > 1
        order = np.argsort(-step * np.where(room, wanted - shares, -step * np.inf), kind="stable")
        shares[order[: min(abs(missing), int(room.sum()))]] += step
    return shares


@dataclass(frozen=True)
class Router:
    """Coarse index of many centroids: group centroids ``heads`` (g, d) float32, and the centroid numbers by group.

    The centroids of group i are ``members[offsets[i]:offsets[i + 1]]``. The index depends on the centroids alone, so
    every worker builds the same one, or receives it.
    """

    heads: np.ndarray
    members: np.ndarray
    offsets: np.ndarray


def build_router(centroids: np.ndarray, seed: int = 0) -> Router:
    """Cluster centroids (k, d) into about sqrt(k) groups of similar direction, as a coarse index."""
    heads = train(centroids, max(1, round(len(centroids) ** 0.5)), seed)
    of_group = assign(centroids, heads)[:, 0]
    members = np.argsort(of_group, kind="stable")
    return Router(heads, members, np.searchsorted(of_group[members], np.arange(len(heads) + 1)))


def assign(
    vectors: np.ndarray, centroids: np.ndarray, probes: int = 1, router: Router | None = None, groups: int = 16
) -> np.ndarray:
    """Assign each vector to its nearest centroids: (n, min(probes, k)) int32, nearest first, ties by number.

    Without a ``router`` the result is exact: n × k dot products in blocks of bounded memory. With a router only the
    centroids of the ``groups`` nearest groups are compared, which may miss the nearest centroid (rarely: see the
    tests); a row whose groups hold fewer than ``probes`` centroids ends in -1.
    """
    probes = min(probes, len(centroids))
    found = np.empty((len(vectors), probes), dtype=np.int32)
    if router is not None:
        near = assign(vectors, router.heads, min(groups, len(router.heads)))
        inside, _ = top_k(vectors, near, centroids[router.members], router.offsets, probes)
        return np.where(inside >= 0, router.members[inside], -1).astype(np.int32)
    centres = np.asarray(centroids, dtype=np.float32)
    for part in blocks(len(vectors), len(centres)):
        found[part] = nearest(np.asarray(vectors[part], dtype=np.float32), centres, probes)[0]
    return found
