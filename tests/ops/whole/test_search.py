import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmill.ops.whole.ranking import unit
from pairmill.ops.whole.search import recall_at_k, top_k, top_k_apart
from tests.examples import examples
from tests.reference.search import best


def world(n: int, m: int, clusters: int, probes: int, seed: int = 0, d: int = 16):
    """(queries, their probed clusters, vectors sorted by cluster, offsets)."""
    rng = np.random.default_rng(seed)
    of = np.sort(rng.integers(0, clusters, size=m))
    asked = np.argsort(rng.random((n, clusters)), axis=1)[:, :probes]
    return (
        unit(rng.normal(size=(n, d))),
        asked,
        unit(rng.normal(size=(m, d))),
        np.searchsorted(of, np.arange(clusters + 1)),
    )


@given(
    st.integers(0, 12),
    st.integers(0, 60),
    st.integers(1, 6),
    st.integers(1, 6),
    st.integers(1, 7),
    st.integers(0, 10**6),
)
@examples(150)
def test_the_answers_are_those_of_the_slow_twin(n: int, m: int, clusters: int, probes: int, k: int, seed: int):
    queries, asked, vectors, offsets = world(n, m, clusters, min(probes, clusters), seed)
    ids, similarities = top_k(queries, asked, vectors, offsets, k)
    assert ids.shape == similarities.shape == (n, k) and ids.dtype == np.int64 and similarities.dtype == np.float32
    for row in range(n):
        candidates = [place for cluster in asked[row] for place in range(offsets[cluster], offsets[cluster + 1])]
        expected = best(queries[row], vectors, candidates, k)
        missing = k - len(expected)
        assert ids[row].tolist() == [place for place, _ in expected] + [-1] * missing
        np.testing.assert_allclose(similarities[row, : len(expected)], [value for _, value in expected], atol=1e-5)
        assert np.isneginf(similarities[row, len(expected) :]).all()


@pytest.mark.parametrize("copies", [2, 100])
def test_ties_go_to_the_smaller_row_within_and_across_clusters(copies: int):
    vectors = np.tile(np.eye(3, dtype=np.float32)[:1], (3 * copies, 1))
    offsets = np.array([0, copies, 2 * copies, 3 * copies])
    ids, similarities = top_k(vectors[:2], np.array([[2, 0, 1], [1, 2, 0]]), vectors, offsets, 5)
    assert ids.tolist() == [[0, 1, 2, 3, 4]] * 2 and (similarities == 1).all()


def test_a_query_gets_the_same_bits_in_any_company(monkeypatch: pytest.MonkeyPatch):
    queries, asked, vectors, offsets = world(300, 3_000, 7, 2, d=64)
    ids, similarities = top_k(queries, asked, vectors, offsets, 5)
    for rows in (np.arange(0, 300, 7), np.array([42]), np.arange(300)[::-1]):
        some_ids, some = top_k(queries[rows], asked[rows], vectors, offsets, 5)
        np.testing.assert_array_equal(some_ids, ids[rows])
        np.testing.assert_array_equal(some, similarities[rows])
    monkeypatch.setattr("pairmill.ops.whole.ranking.BLOCK_BYTES", 8_192)
    np.testing.assert_array_equal(top_k(queries, asked, vectors, offsets, 5)[1], similarities)


def test_vectors_may_be_a_memory_map_of_half_precision(tmp_path):
    queries, asked, vectors, offsets = world(20, 200, 4, 2)
    half = vectors.astype(np.float16)
    half.tofile(tmp_path / "vectors")
    mapped = np.memmap(tmp_path / "vectors", dtype=np.float16, mode="r", shape=half.shape)
    ids, _ = top_k(queries, asked, mapped, offsets, 3)
    np.testing.assert_array_equal(ids, top_k(queries, asked, half.astype(np.float32), offsets, 3)[0])


def test_a_place_without_a_cluster_is_skipped():
    queries, asked, vectors, offsets = world(5, 50, 3, 2)
    without = asked.copy()
    without[:, 1] = -1
    np.testing.assert_array_equal(
        top_k(queries, without, vectors, offsets, 3)[0], top_k(queries, asked[:, :1], vectors, offsets, 3)[0]
    )
    assert (top_k(queries, np.full((5, 1), -1), vectors, offsets, 3)[0] == -1).all()


def test_recall_counts_what_is_as_near_as_the_exact_k_th():
    exact = np.array([[0.9, 0.8, 0.7], [0.5, 0.4, 0.3]])
    assert recall_at_k(exact, exact, 3) == 1
    assert recall_at_k(np.array([[0.9, 0.8, 0.69], [0.5, 0.2, 0.1]]), exact, 3) == pytest.approx(3 / 6)
    assert recall_at_k(np.array([[0.9, 0.8, 0.69995], [0.5, 0.4, 0.3]]), exact, 3) == 1
    assert recall_at_k(exact[:, ::-1][:, :1], exact, 1) == 0


def test_recall_where_there_are_fewer_answers_than_asked():
    none = -np.inf
    exact = np.array([[0.9, 0.8, none], [none, none, none]])
    assert recall_at_k(np.array([[0.9, none, none], [none, none, none]]), exact, 3) == 0.5
    assert recall_at_k(exact, exact, 3) == 1
    assert recall_at_k(exact[1:], exact[1:], 3) == 1
    assert recall_at_k(np.empty((0, 3)), np.empty((0, 3)), 3) == 1


def test_searching_every_cluster_has_full_recall_and_one_of_many_has_less():
    queries, asked, vectors, offsets = world(200, 2_000, 20, 20)
    exact = top_k(queries, asked, vectors, offsets, 10)[1]
    assert recall_at_k(exact, exact, 10) == 1
    assert recall_at_k(top_k(queries, asked[:, :2], vectors, offsets, 10)[1], exact, 10) < 0.3


@given(
    st.integers(1, 8),
    st.integers(1, 60),
    st.integers(1, 5),
    st.integers(1, 5),
    st.integers(1, 9),
    st.integers(0, 10**6),
)
@examples(100)
def test_of_each_group_the_nearest_alone_is_found(n: int, m: int, clusters: int, probes: int, n_groups: int, seed: int):
    queries, asked, vectors, offsets = world(n, m, clusters, min(probes, clusters), seed)
    groups = np.random.default_rng(seed).integers(0, n_groups, m)
    ids, similarities = top_k_apart(queries, asked, vectors, offsets, 3, groups)
    for row in range(n):
        candidates = [place for cluster in asked[row] for place in range(offsets[cluster], offsets[cluster + 1])]
        expected, met = [], set()
        for place, value in best(queries[row], vectors, candidates, m):
            if groups[place] not in met and len(met) < 3:
                expected.append((place, value))
                met.add(groups[place])
        missing = [-1] * (3 - len(expected))
        assert ids[row].tolist() == [place for place, _ in expected] + missing
        np.testing.assert_allclose(similarities[row, : len(expected)], [value for _, value in expected], atol=1e-5)
        assert np.isneginf(similarities[row, len(expected) :]).all()
