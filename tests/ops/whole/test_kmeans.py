import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmill.ops.whole import kmeans
from pairmill.ops.whole.kmeans import assign, build_router, train
from pairmill.ops.whole.ranking import unit
from tests.examples import examples
from tests.reference.search import best


def planted(
    n: int, k: int, d: int = 32, noise: float = 0.1, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(vectors, the cluster of each, the clusters' directions)."""
    rng = np.random.default_rng(seed)
    heads = unit(rng.normal(size=(k, d)))
    of = rng.integers(0, k, size=n)
    return unit(heads[of] + noise * rng.normal(size=(n, d)) / d**0.5), of, heads


def test_planted_clusters_are_found():
    vectors, of, heads = planted(2_000, 12)
    # Twice as many centroids as clusters: k-means starts at random vectors, and two may share a cluster for good.
    centroids = train(vectors, 24, seed=1, iterations=20)
    assert centroids.shape == (24, 32) and centroids.dtype == np.float32
    found = assign(vectors, centroids)[:, 0]
    together = sum(np.bincount(of[found == cluster], minlength=12).max() for cluster in range(24))
    assert together > 0.97 * len(vectors)
    assert (assign(heads, centroids)[:, 0] == assign(heads, centroids, 3)[:, 0]).all()


@pytest.mark.parametrize("k", [1, 7, 64])
def test_centroids_have_length_one_and_are_the_same_for_the_same_seed(k: int):
    vectors, _, _ = planted(3_000, 40)
    first, again, other = train(vectors, k, seed=3), train(vectors, k, seed=3), train(vectors, k, seed=4)
    np.testing.assert_array_equal(first, again)
    np.testing.assert_allclose(np.linalg.norm(first, axis=1), 1, atol=1e-5)
    assert k == 1 or not np.array_equal(first, other)


def test_the_number_of_threads_does_not_change_the_centroids():
    import faiss

    vectors, _, _ = planted(20_000, 50)
    threads = faiss.omp_get_max_threads()
    try:
        found = []
        for count in (1, 2, 3):
            faiss.omp_set_num_threads(count)
            found.append(train(vectors, 100, seed=0, iterations=5))
    finally:
        faiss.omp_set_num_threads(threads)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_one_cluster_is_the_direction_of_the_mean():
    vectors, _, _ = planted(150, 3)
    np.testing.assert_allclose(train(vectors, 1)[0], unit(vectors.mean(0, keepdims=True))[0], atol=1e-5)


@pytest.mark.parametrize("k", [5, 6, 100])
def test_as_many_clusters_as_vectors_are_the_vectors(k: int):
    vectors = planted(5, 5)[0]
    np.testing.assert_allclose(train(vectors, k), vectors, atol=1e-6)


def test_nothing_to_train_on_is_refused():
    with pytest.raises(ValueError, match="0 vectors into 3 clusters"):
        train(np.empty((0, 4), dtype=np.float32), 3)
    with pytest.raises(ValueError, match="into 0 clusters"):
        train(np.ones((2, 4), dtype=np.float32), 0)


@pytest.mark.parametrize("flat_limit", [4, 100])
def test_equal_vectors_and_zeros_give_finite_centroids(flat_limit: int):
    vectors = np.zeros((300, 8), dtype=np.float32)
    vectors[:200, 0] = 1
    vectors[200:290, 1] = 1
    centroids = train(vectors, 20, flat_limit=flat_limit)
    assert centroids.shape == (20, 8) and np.isfinite(centroids).all()
    found = assign(vectors, centroids)[:, 0]
    assert found[0] != found[200] and len(set(found[:200].tolist())) == 1


def test_two_levels_find_planted_clusters_as_well_as_one():
    vectors, _, _ = planted(6_000, 100, d=24)
    flat, two = train(vectors, 100, iterations=15), train(vectors, 100, iterations=15, flat_limit=50)
    assert two.shape == flat.shape and np.linalg.norm(two, axis=1) == pytest.approx(1, abs=1e-5)
    np.testing.assert_array_equal(two, train(vectors, 100, iterations=15, flat_limit=50))

    def cohesion(centroids: np.ndarray) -> float:
        return float((vectors * centroids[assign(vectors, centroids)[:, 0]]).sum(1).mean())

    assert cohesion(two) > cohesion(flat) - 0.01


def test_vectors_may_be_a_memory_map_of_half_precision(tmp_path):
    vectors = planted(2_000, 30)[0].astype(np.float16)
    vectors.tofile(tmp_path / "vectors")
    mapped = np.memmap(tmp_path / "vectors", dtype=np.float16, mode="r", shape=vectors.shape)
    np.testing.assert_array_equal(train(mapped, 40, flat_limit=20), train(vectors, 40, flat_limit=20))


@given(st.lists(st.integers(0, 50), min_size=1, max_size=20), st.integers(1, 200))
@examples(300)
def test_shares_add_up_and_no_group_gets_more_than_its_points(sizes: list[int], k: int):
    filled = sum(size > 0 for size in sizes)
    total = sum(sizes)
    if not filled <= k <= total:
        return
    shares = kmeans._shares(np.array(sizes), k)
    assert shares.sum() == k
    assert all((share >= 1) == (size > 0) and share <= size for share, size in zip(shares, sizes, strict=True))


def test_assignment_equals_the_slow_twin():
    vectors, _, _ = planted(200, 20)
    centroids = train(vectors, 30)
    found = assign(vectors, centroids, probes=4)
    assert found.dtype == np.int32
    for row, vector in enumerate(vectors):
        assert found[row].tolist() == [cluster for cluster, _ in best(vector, centroids, range(30), 4)]


@pytest.mark.parametrize("copies", [3, 40])
def test_ties_go_to_the_smaller_number_however_many_there_are(copies: int):
    centroids = np.repeat(unit(np.random.default_rng(0).normal(size=(4, 16))), copies, axis=0)
    found = assign(centroids, centroids, probes=3)
    first = np.arange(4 * copies) // copies * copies
    np.testing.assert_array_equal(found, first[:, None] + np.arange(3))


def test_a_vector_is_assigned_alike_in_any_block(monkeypatch: pytest.MonkeyPatch):
    vectors, _, _ = planted(700, 20)
    centroids = train(vectors, 50)
    whole = assign(vectors, centroids, probes=3)
    parts = [assign(part, centroids, probes=3) for part in np.array_split(vectors, 9)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    monkeypatch.setattr("pairmill.ops.whole.ranking.BLOCK_BYTES", 4_096)
    np.testing.assert_array_equal(assign(vectors, centroids, probes=3), whole)


def test_more_probes_than_clusters_give_all_clusters():
    vectors = planted(20, 3)[0]
    assert np.sort(assign(vectors, train(vectors, 3), probes=9), axis=1).tolist() == [[0, 1, 2]] * 20
    assert assign(vectors[:0], vectors, 2).shape == (0, 2)


def test_routed_assignment_nearly_always_finds_the_exact_one():
    vectors, _, _ = planted(5_000, 400, noise=0.6)
    centroids = train(vectors, 900, iterations=4)
    router = build_router(centroids)
    assert sorted(router.members.tolist()) == list(range(900)) and router.offsets[-1] == 900
    exact = assign(vectors, centroids)[:, 0]
    assert (assign(vectors, centroids, 1, router, groups=4)[:, 0] == exact).mean() > 0.9
    assert (assign(vectors, centroids, 1, router, groups=8)[:, 0] == exact).mean() > 0.97
    np.testing.assert_array_equal(assign(vectors, centroids, 3, router, groups=30), assign(vectors, centroids, 3))
