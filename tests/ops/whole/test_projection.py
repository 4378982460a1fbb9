"""A projection keeps groups together, repeats, and places later vectors beside their neighbours."""

from collections.abc import Iterator

import numpy as np
import pytest

from pairmill.ops.whole import projection
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


@pytest.fixture(scope="module", params=["components", pytest.param("umap", marks=pytest.mark.full)])
def fitted(request: pytest.FixtureRequest, made: np.ndarray) -> Iterator[Projection]:
    """The projection of 1,000 of them by each layout; UMAP compiles its loops for 30 s."""
    if request.param == "umap":
        pytest.importorskip("umap")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(projection, "layout", lambda: request.param)
        yield fit(made[:1_000])


def nearest(rows: np.ndarray, of: np.ndarray, k: int) -> np.ndarray:
    return np.argsort(((of[:, None] - rows[None]) ** 2).sum(2), axis=1)[:, :k]


def test_neighbours_on_the_map_are_of_the_same_group(
    groups: np.ndarray, fitted: Projection, request: pytest.FixtureRequest
):
    near = nearest(fitted.places, fitted.places, 11)[:, 1:]
    alike = (groups[near] == groups[:1_000, None]).mean()
    if "umap" in request.node.name:
        assert alike > 0.98
    else:
        assert 0.5 < alike < 0.9  # two components alone do not separate all 8


def test_a_later_vector_lands_among_its_neighbours_and_moves_no_other(made: np.ndarray, fitted: Projection):
    before = fitted.places.copy()
    later = fitted.place(made[1_000:])
    own = nearest(fitted.sample, (made[1_000:] - fitted.mean) @ fitted.components, 5)
    assert later.shape == (200, 2)
    assert (np.abs(later - fitted.places[own].mean(1)).max(1) <= np.ptp(fitted.places[own], axis=1).max(1) + 1e-3).all()
    assert (fitted.places == before).all()
    assert np.allclose(fitted.place(made[:1_000]), fitted.places, atol=1e-2)  # a sampled one keeps its place


def test_the_same_sample_gives_the_same_places(made: np.ndarray, fitted: Projection):
    assert (fit(made[:1_000]).places == fitted.places).all()


@pytest.mark.parametrize(("n", "d"), [(1, 16), (2, 1), (5, 3), (40, 8)])
def test_few_and_equal_vectors_are_placed(n: int, d: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(projection, "layout", lambda: "components")
    for rows in (np.eye(n, d, dtype=np.float32), np.ones((n, d), np.float32)):
        fitted = fit(rows)
        assert fitted.places.shape == (n, 2) and np.isfinite(fitted.place(rows)).all()
