"""Make clustered unit vectors like CLIP's: topics contain concepts, concepts contain items."""

from __future__ import annotations

import numpy as np

BLOCK = 20_000


def vectors(
    n: int, dimension: int = 512, topics: int = 500, concepts: int = 40, seed: int = 0, first: int = 0
) -> np.ndarray:
    """Make ``topics`` directions, ``concepts`` around each, and items around those.

    Two items of a concept have a cosine of some 0.8, of a topic 0.5, others 0. The first rows are the same for any
    ``n``. Rows begin with ``first``, a multiple of 20,000.

    Returns:
        Unit vectors, (n, dimension) float32.
    """
    rng = np.random.default_rng(seed)
    heads = _unit(rng.standard_normal((topics, 1, dimension), np.float32))
    centres = _unit(heads + _unit(rng.standard_normal((topics, concepts, dimension), np.float32)) * 0.8)
    centres = centres.reshape(-1, dimension)
    found = np.empty((n, dimension), np.float32)
    for start in range(0, n, BLOCK):
        rng = np.random.default_rng((seed, first + start))
        noise = _unit(rng.standard_normal((BLOCK, dimension), np.float32)) * 0.5
        rows = _unit(centres[rng.integers(0, len(centres), BLOCK)] + noise)
        found[start : start + BLOCK] = rows[: n - start]
    return found


def _unit(rows: np.ndarray) -> np.ndarray:
    """Scale rows to length 1."""
    return rows / np.sqrt(np.einsum("...i,...i->...", rows, rows))[..., None]
