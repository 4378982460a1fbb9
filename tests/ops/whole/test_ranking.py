"""The scan that finds candidates, by torch in bfloat16 or float32 or by numpy, against one product at a time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmill.ops.whole import ranking
from pairmill.ops.whole.ranking import nearest, unit
from tests.examples import examples
from tests.reference.search import best


@pytest.fixture(params=["bfloat16", "float32", "numpy"], autouse=True)
def rough(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """All ways on any CPU: torch has products of bfloat16 without the instructions, too, only slowly."""
    monkeypatch.setattr(ranking, "multiplies_bfloat16", lambda: request.param == "bfloat16")
    monkeypatch.setattr(ranking, "uses_torch", lambda n: request.param != "numpy")
    return request.param


def close_together(n: int, d: int, spread: float, seed: int) -> np.ndarray:
    """Vectors so near each other that bfloat16 alone would rank them wrongly."""
    rng = np.random.default_rng(seed)
    return unit(rng.normal(size=d) + spread * rng.normal(size=(n, d)))


@pytest.mark.parametrize("k", [1, 3, 40, 70])
@pytest.mark.parametrize("n", [5, 64, 129, 500])
@pytest.mark.parametrize("spread", [1.0, 0.03])
def test_the_nearest_are_those_of_the_slow_twin(n: int, k: int, spread: float):
    known, queries = close_together(n, 48, spread, 0), close_together(20, 48, spread, 1)
    found, products = nearest(queries, known, k)
    assert found.shape == products.shape == (20, min(k, n))
    for row, query in enumerate(queries):
        expected = best(query, known, range(n), k)
        np.testing.assert_allclose(products[row], [similarity for _, similarity in expected], atol=1e-6)
        # Where float32 rounds two products to one, the smaller index comes first; the twin tells them apart.
        gaps = -np.diff([similarity for _, similarity in expected], prepend=np.inf, append=-np.inf)
        apart = (gaps[:-1] > 1e-6) & (gaps[1:] > 1e-6)
        apart[-1] &= n == k or best(query, known, range(n), k + 1)[-1][1] < expected[-1][1] - 1e-6
        assert found[row][apart].tolist() == [place for (place, _), sure in zip(expected, apart, strict=True) if sure]


@examples(60)
@given(st.integers(1, 300), st.integers(1, 90), st.integers(0, 10_000), st.sampled_from([1e-3, 1.0, 40.0]))
def test_both_ways_give_the_same_bits_for_vectors_of_any_length(n: int, k: int, seed: int, scale: float):
    known, queries = close_together(n, 24, 0.1, seed), close_together(9, 24, 0.1, seed + 1)
    known *= np.random.default_rng(seed).uniform(0.2, 1, (n, 1)).astype(np.float32) * np.float32(scale)
    results = []
    way = ranking.multiplies_bfloat16
    for half in (True, False):
        ranking.multiplies_bfloat16 = lambda half=half: half
        try:
            results.append(nearest(queries, known, k))
        finally:
            ranking.multiplies_bfloat16 = way
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_array_equal(results[0][1], results[1][1])


def test_equal_vectors_come_in_order_of_their_index():
    known = np.repeat(close_together(4, 32, 1.0, 2), 50, axis=0)
    found, _ = nearest(known[::50], known, 60)
    np.testing.assert_array_equal(found[:, :50], np.arange(0, 200, 50)[:, None] + np.arange(50))


def test_opposite_vectors_have_a_nearest_too():
    known = close_together(300, 16, 0.05, 3)
    found, products = nearest(-known[:5], known, 2)
    assert (products < -0.9).all()
    for row in range(5):
        assert found[row].tolist() == [place for place, _ in best(-known[row], known, range(300), 2)]


def test_a_vector_that_is_no_number_takes_no_place_of_another_and_does_not_fail():
    known = close_together(200, 16, 0.5, 4)
    expected = nearest(known[:3], known, 2)[0]
    queries = np.concatenate([known[:3], np.full((1, 16), np.nan, np.float32)])
    np.testing.assert_array_equal(nearest(queries, known, 2)[0][:3], expected)


def test_nothing_asked_or_nothing_known_gives_nothing():
    known = close_together(7, 8, 1.0, 5)
    assert nearest(known[:0], known, 3)[0].shape == (0, 3)
    assert nearest(known, known[:0], 3)[0].shape == (7, 0)


def test_read_only_vectors_do():
    known = close_together(130, 16, 1.0, 6)
    expected = nearest(known, known, 2)
    known.flags.writeable = False
    np.testing.assert_array_equal(nearest(known, known, 2)[0], expected[0])
