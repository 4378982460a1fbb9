"""Lay out vectors in the plane so that near ones stay near: UMAP (McInnes, Healy and Melville 2018) on a sample.

The steps are UMAP's: fuzzy nearest neighbours, principal components as the start, attraction along edges and repulsion
from random others. Every epoch moves all points at once, so the result depends on the seed and not on threads. Other
vectors are placed beside their nearest neighbours of the sample, which never moves again.
"""

from __future__ import annotations

from dataclasses import dataclass

import faiss
import numpy as np

from pairmill.ops.whole.mapped import blocks

COMPONENTS = 50
NEIGHBOURS = 15
EPOCHS = 200
REPELLING = 5  # random others for each attracting edge
CURVE = (0.583, 1.334)  # UMAP's a and b for min_dist 0.5: points of a tight group stay apart enough to be lassoed
STEP = 0.15  # of the summed forces: all points move at once, and with whole steps groups collapse into lines
LONGEST_STEP = 4.0
PLACED_BY = 5  # neighbours in the sample that place another vector
AT_ONCE = 16_384


@dataclass(frozen=True)
class Projection:
    """A frozen projection: ``mean`` (d,), ``components`` (d, c), the sample as (m, c) and its places (m, 2)."""

    mean: np.ndarray
    components: np.ndarray
    sample: np.ndarray
    places: np.ndarray

    def place(self, vectors: np.ndarray) -> np.ndarray:
        """Return places (n, 2) float32: the mean of the nearest sampled places, weighted by 1 / distance²."""
        index = faiss.IndexFlatL2(self.sample.shape[1])
        index.add(self.sample)
        found = np.empty((len(vectors), 2), np.float32)
        for start, block in zip(range(0, len(vectors), AT_ONCE), blocks(vectors, AT_ONCE), strict=True):
            rows = _reduced(block, self.mean, self.components)
            distances, near = index.search(rows, min(PLACED_BY, len(self.sample)))
            weights = 1.0 / np.maximum(distances, 1e-9)
            weights /= weights.sum(1, keepdims=True)
            found[start : start + len(rows)] = (self.places[near] * weights[..., None]).sum(1)
        return found


def fit(sample: np.ndarray, seed: int = 0) -> Projection:
    """Return the projection of a sample (m, d), m >= 1. 10,000 vectors of 512 numbers take 12 s of one CPU."""
    rows = np.asarray(sample, np.float32)
    mean = rows.mean(0)
    spread, directions = np.linalg.eigh((rows - mean).T @ (rows - mean))
    components = np.ascontiguousarray(directions[:, np.argsort(-spread)[:COMPONENTS]], np.float32)
    components *= np.sign(components[np.abs(components).argmax(0), np.arange(components.shape[1])])  # eigh's are free
    reduced = _reduced(rows, mean, components)
    return Projection(mean, components, reduced, _layout(reduced, seed))


def _reduced(rows: np.ndarray, mean: np.ndarray, components: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray((np.asarray(rows, np.float32) - mean) @ components)


def _layout(rows: np.ndarray, seed: int) -> np.ndarray:
    """Return places (m, 2) float32 of the reduced rows (m, c)."""
    places = np.zeros((len(rows), 2), np.float32)
    places[:, : rows.shape[1]] = rows[:, :2]
    places *= 10 / max(float(np.abs(places).max()), 1e-9)
    if len(rows) <= NEIGHBOURS:
        return places
    left, right, weights = _edges(rows)
    random = np.random.default_rng(seed)
    for epoch in range(EPOCHS):
        rate = STEP * (1.0 - epoch / EPOCHS)
        active = random.random(len(weights)) < weights
        a, b = left[active], right[active]
        places += rate * _moves(places, a, b, _attraction)
        others = random.integers(0, len(rows), (REPELLING, len(a)))
        for other in others:
            places += rate * _moves(places, a, other, _repulsion)
    return places


def _edges(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (left, right, weight) of the symmetric fuzzy graph, each edge in both directions, weights in (0, 1]."""
    m = len(rows)
    index = faiss.IndexFlatL2(rows.shape[1])
    index.add(rows)
    squares, near = index.search(rows, NEIGHBOURS + 1)
    weights = _memberships(np.sqrt(np.maximum(squares[:, 1:], 0)))
    left = np.repeat(np.arange(m, dtype=np.int64), NEIGHBOURS)
    one_way = np.concatenate([left * m + near[:, 1:].ravel(), near[:, 1:].ravel() * m + left])
    edges, place = np.unique(one_way, return_inverse=True)
    forth, back = (np.zeros(len(edges), np.float32) for _ in range(2))
    np.maximum.at(forth, place[: len(left)], weights.ravel())
    np.maximum.at(back, place[len(left) :], weights.ravel())
    return edges // m, edges % m, forth + back - forth * back


def _memberships(distances: np.ndarray) -> np.ndarray:
    """Return the weights (m, k) of neighbours: exp(-(d - nearest) / s), with s so that they sum to log2(k)."""
    beyond = distances - distances[:, :1]
    low, high = np.full(len(distances), 1e-6, np.float32), np.full(len(distances), 1e3, np.float32)
    for _ in range(40):
        middle = np.sqrt(low * high)
        too_many = np.exp(-beyond / middle[:, None]).sum(1) > np.log2(NEIGHBOURS)
        high, low = np.where(too_many, middle, high), np.where(too_many, low, middle)
    return np.exp(-beyond / high[:, None]).astype(np.float32)


def _attraction(squares: np.ndarray) -> np.ndarray:
    a, b = CURVE
    return -2 * a * b * squares ** (b - 1) / (1 + a * squares**b)


def _repulsion(squares: np.ndarray) -> np.ndarray:
    a, b = CURVE
    return 2 * b / ((0.001 + squares) * (1 + a * squares**b))


def _moves(places: np.ndarray, left: np.ndarray, right: np.ndarray, force: object) -> np.ndarray:
    """Return the sum of the steps (m, 2) of each point on the left, none longer than LONGEST_STEP an axis."""
    between = places[left] - places[right]
    squares = np.maximum((between**2).sum(1), 1e-6)
    steps = np.clip(force(squares)[:, None] * between, -LONGEST_STEP, LONGEST_STEP)  # pyright: ignore
    sums = [np.bincount(left, steps[:, axis], len(places)) for axis in (0, 1)]
    return np.stack(sums, 1).astype(np.float32)
