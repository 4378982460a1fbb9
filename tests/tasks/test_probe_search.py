"""The probes that a recall needs: as few as a search by every number of probes says, and frozen until rows double."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pairmill.ops.whole.ranking import unit
from pairmill.tasks.relate.recall import fewest_probes, probe_ranks
from tests.examples import examples
from tests.reference.search import fewest


@given(st.integers(1, 8), st.integers(1, 40), st.integers(1, 7), st.integers(1, 4), st.integers(0, 10**6),
       st.sampled_from([0.3, 0.5, 0.8, 0.95, 1.0]))  # fmt: skip
@examples(80)
def test_the_fewest_probes_are_those_of_the_slow_twin(n: int, m: int, p: int, k: int, seed: int, recall: float):
    rng = np.random.default_rng(seed)
    queries, vectors = unit(rng.normal(size=(n, 16))), unit(rng.normal(size=(m, 16)))
    clusters, groups = rng.integers(0, p, size=m), rng.integers(0, max(1, m // 2), size=m)
    nearest = np.argsort(rng.random((n, p)), axis=1)
    similarities = queries @ vectors.T
    order = np.argsort(-similarities, axis=1)
    values = np.take_along_axis(similarities, order, axis=1)
    ranks = probe_ranks(nearest, clusters[order])
    assert fewest_probes(ranks, values, groups[order], k, recall, p) == fewest(
        queries, nearest, vectors, clusters.tolist(), groups.tolist(), k, recall
    )


def test_padding_is_in_no_cluster_and_counts_for_nothing():
    ranks = probe_ranks(np.array([[1, 0, -1]]), np.array([[0, -1, 7]]))
    assert ranks.tolist() == [[1, 3, 3]]
    values = np.array([[0.9, -np.inf, -np.inf]], np.float32)
    assert fewest_probes(ranks, values, np.array([[4, -1, -1]]), 3, 0.95, 3) == 2


def test_a_recall_that_no_number_of_probes_reaches_gives_the_most():
    values = np.array([[0.9, 0.8]], np.float32)
    assert fewest_probes(np.array([[0, 5]]), values, np.array([[0, 1]]), 2, 1.0, 3) == 3
