"""Project vectors to the plane so that near ones stay near: UMAP of a sample, or its first two principal components.

Other vectors are placed beside their nearest neighbours of the sample, which never moves again.
"""

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

import faiss
import numpy as np

from pairmill.ops.whole.mapped import blocks

COMPONENTS = 50
NEIGHBOURS = 15
MIN_DISTANCE = 0.5  # UMAP's min_dist: points of a tight group stay apart enough to be lassoed
PLACED_BY = 5  # neighbours in the sample that place another vector
AT_ONCE = 16_384


@dataclass(frozen=True)
class Projection:
    """A fixed projection: ``mean`` (d,), ``components`` (d, c), the reduced sample (m, c) and its ``places`` (m, 2)."""

    mean: np.ndarray
    components: np.ndarray
    sample: np.ndarray
    places: np.ndarray

    def place(self, vectors: np.ndarray) -> np.ndarray:
        """Return places (n, 2) float32 of vectors (n, d): means of near sample places, weighted by 1 / distance²."""
        index = faiss.IndexFlatL2(self.sample.shape[1])
        index.add(self.sample)
        found = np.empty((len(vectors), 2), np.float32)
        for start, block in zip(range(0, len(vectors), AT_ONCE), blocks(vectors, AT_ONCE), strict=True):
            rows = _reduce(block, self.mean, self.components)
            distances, near = index.search(rows, min(PLACED_BY, len(self.sample)))
            weights = 1.0 / np.maximum(distances, 1e-9)
            weights /= weights.sum(1, keepdims=True)
            found[start : start + len(rows)] = (self.places[near] * weights[..., None]).sum(1)
        return found


def layout() -> str:
    """Return the name of the layout method: 'umap' if umap-learn is installed (the extra `map`), else 'components'."""
    return "umap" if find_spec("umap") else "components"


def fit(sample: np.ndarray) -> Projection:
    """Fit a projection to a sample (m, d), m >= 1, by `layout`. UMAP of 10,000 vectors takes half a minute."""
    rows = np.asarray(sample, np.float32)
    mean = rows.mean(0)
    spread, directions = np.linalg.eigh((rows - mean).T @ (rows - mean))
    components = np.ascontiguousarray(directions[:, np.argsort(-spread)[:COMPONENTS]], np.float32)
    components *= np.sign(components[np.abs(components).argmax(0), np.arange(components.shape[1])])  # eigh's are free
    reduced = _reduce(rows, mean, components)
    return Projection(mean, components, reduced, _places(reduced))


def _reduce(rows: np.ndarray, mean: np.ndarray, components: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray((np.asarray(rows, np.float32) - mean) @ components)


def _places(rows: np.ndarray) -> np.ndarray:
    """Return places (m, 2) float32 of the reduced rows (m, c)."""
    if layout() == "umap" and len(rows) > NEIGHBOURS:
        umap = import_module("umap").UMAP  # compiles its loops, for half a minute
        found = umap(n_neighbors=NEIGHBOURS, min_dist=MIN_DISTANCE, random_state=0, n_jobs=1).fit_transform(rows)
        return np.ascontiguousarray(found, np.float32)
    places = np.zeros((len(rows), 2), np.float32)
    places[:, : rows.shape[1]] = rows[:, :2]
    return places
