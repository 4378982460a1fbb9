"""A projection keeps groups together, repeats, and places later vectors beside their neighbours."""

import numpy as np
import pytest

from pairmill.ops.whole.projection import Projection, fit

GROUPS = 8


@pytest.fixture(scope="module")
def groups() -> np.ndarray:
    return np.random.default_rng(2).integers(0, GROUPS, 1_200)


@pytest.fixture(scope="module")
def made(groups: np.ndarray) -> np.ndarray:
    """1,200 vectors of 64 numbers around 8 directions."""
    noise = np.random.default_rng(3).normal(size=(1_200, 64)) * 0.07
    return (np.eye(64)[groups] + noise).astype(np.float32)


@pytest.fixture(scope="module")
def fitted(made: np.ndarray) -> Projection:
    return fit(made[:1_000])


def nearest(rows: np.ndarray, of: np.ndarray, k: int) -> np.ndarray:
    return np.argsort(((of[:, None] - rows[None]) ** 2).sum(2), axis=1)[:, :k]


def test_neighbours_on_the_map_are_of_the_same_group(groups: np.ndarray, fitted: Projection):
    near = nearest(fitted.places, fitted.places, 11)[:, 1:]
    assert (groups[near] == groups[:1_000, None]).mean() > 0.98
    principal = fitted.sample[:, :2]
    flat = nearest(principal, principal, 11)[:, 1:]
    assert (groups[flat] == groups[:1_000, None]).mean() < 0.9  # two components alone do not separate them


def test_a_later_vector_lands_in_its_group_and_moves_no_other(made: np.ndarray, groups: np.ndarray, fitted: Projection):
    before = fitted.places.copy()
    later = fitted.place(made[1_000:])
    near = nearest(fitted.places, later, 5)
    assert (groups[near] == groups[1_000:, None]).mean() > 0.98
    assert (fitted.places == before).all()
    assert np.allclose(fitted.place(made[:1_000]), fitted.places, atol=1e-2)  # a sampled one keeps its place


def test_the_same_sample_gives_the_same_places(made: np.ndarray):
    first, again, other = (fit(made[:300], seed).places for seed in (0, 0, 1))
    assert (first == again).all() and not np.allclose(first, other)


@pytest.mark.parametrize(("n", "d"), [(1, 16), (2, 1), (5, 3), (40, 8)])
def test_few_and_equal_vectors_are_placed(n: int, d: int):
    for rows in (np.eye(n, d, dtype=np.float32), np.ones((n, d), np.float32)):
        fitted = fit(rows)
        assert fitted.places.shape == (n, 2) and np.isfinite(fitted.place(rows)).all()
