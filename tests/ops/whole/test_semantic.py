import numpy as np
import pytest

from pairmill.ops.whole.components import components
from pairmill.ops.whole.kmeans import assign, train
from pairmill.ops.whole.ranking import unit
from pairmill.ops.whole.semantic import edges_within
from tests.reference.semantic import all_pairs


def families(n: int = 300, d: int = 32, seed: int = 0) -> np.ndarray:
    """Pictures of which two thirds are near copies of another."""
    rng = np.random.default_rng(seed)
    heads = unit(rng.normal(size=(n // 3, d)))
    copies = [unit(heads + noise * rng.normal(size=heads.shape) / d**0.5) for noise in (0.1, 0.25)]
    return np.concatenate([heads, *copies])[rng.permutation(n // 3 * 3)]


def edges_of(
    vectors: np.ndarray,
    centroids: np.ndarray | None = None,
    is_new: np.ndarray | None = None,
    threshold: float = 0.96,
    probes: int = 2,
    most: int = 1_000,
) -> dict[tuple[int, int], float]:
    centroids = train(vectors, len(vectors) // 40) if centroids is None else centroids
    is_new = np.ones(len(vectors), bool) if is_new is None else is_new
    near = assign(vectors, centroids, probes)
    rows = np.repeat(np.arange(len(vectors)), near.shape[1])
    return checked(edges_within(vectors, is_new, rows, near.ravel(), threshold, most), threshold)


def checked(edges: tuple[np.ndarray, np.ndarray, np.ndarray], threshold: float) -> dict[tuple[int, int], float]:
    i, j, similarity = edges
    assert (i < j).all() and len(set(zip(i.tolist(), j.tolist(), strict=True))) == len(i)
    assert (similarity >= threshold).all() and similarity.dtype == np.float32
    return dict(zip(zip(i.tolist(), j.tolist(), strict=True), similarity.tolist(), strict=True))


def test_in_one_cluster_the_edges_are_those_of_all_pairs():
    vectors = families()
    expected = all_pairs(vectors, 0.96)
    found = edges_of(vectors, centroids=vectors[:1])
    assert found.keys() == expected.keys() and len(expected) > 100
    assert all(abs(found[pair] - value) < 1e-5 for pair, value in expected.items())


@pytest.mark.parametrize("seed", range(3))
def test_inside_clusters_nearly_all_pairs_are_found_and_no_other(seed: int):
    vectors = families(900, seed=seed)
    expected = all_pairs(vectors, 0.96)
    one, two = edges_of(vectors, probes=1), edges_of(vectors, probes=2)
    assert one.keys() <= two.keys() <= expected.keys()
    assert len(one) >= 0.9 * len(expected) and len(two) >= 0.98 * len(expected)


def test_only_pairs_with_a_new_end_are_looked_at():
    vectors = families()
    is_new = np.arange(len(vectors)) % 3 == 0
    found, whole = edges_of(vectors, is_new=is_new), edges_of(vectors)
    assert found == {pair: value for pair, value in whole.items() if is_new[pair[0]] or is_new[pair[1]]}
    assert edges_of(vectors, is_new=np.zeros(len(vectors), bool)) == {}


def test_the_blocks_do_not_change_a_bit(monkeypatch: pytest.MonkeyPatch):
    vectors = families()
    centroids = train(vectors, 8)
    whole = edges_of(vectors, centroids=centroids)
    monkeypatch.setattr("pairmill.ops.whole.ranking.BLOCK_BYTES", 1_024)
    assert edges_of(vectors, centroids=centroids) == whole


def test_half_precision_vectors_are_compared_in_single_precision():
    vectors = families()
    half = vectors.astype(np.float16)
    centroids = train(vectors, 4)
    found = edges_of(half, centroids=centroids)
    assert found == edges_of(half.astype(np.float32), centroids=centroids)


def test_a_crowd_keeps_its_nearest_and_stays_together():
    rng = np.random.default_rng(3)
    crowd = unit(np.eye(16, dtype=np.float32)[:1] + 0.02 * rng.normal(size=(400, 16)))
    found = edges_of(crowd, centroids=crowd[:1], threshold=0.9, most=20)
    everything = edges_of(crowd, centroids=crowd[:1], threshold=0.9)
    assert len(found) <= 400 * 20 < len(everything)
    i, j = (np.array(end) for end in zip(*found, strict=True))
    assert np.bincount(components(400, (i, j))).max() > 20, "still over the limit, so still cut and reported"
    assert max(found.values()) == max(everything.values())


def test_small_groups_lose_nothing_to_the_limit_of_crowds():
    vectors = families()
    centroids = train(vectors, 4)
    assert edges_of(vectors, centroids=centroids, most=3) == edges_of(vectors, centroids=centroids)


def test_members_given_in_any_order_have_the_same_edges():
    vectors = families()
    centroids = train(vectors, 7)
    near = assign(vectors, centroids, 2)
    rows, clusters = np.repeat(np.arange(len(vectors)), 2), near.ravel()
    order = np.random.default_rng(0).permutation(len(rows))
    found = edges_within(vectors, np.ones(len(vectors), bool), rows[order], clusters[order], 0.96)
    assert checked(found, 0.96) == edges_of(vectors, centroids)


def test_no_vectors_have_no_edges():
    assert edges_of(np.empty((0, 8), dtype=np.float32), centroids=np.ones((1, 8), dtype=np.float32)) == {}
