"""Compare the simulation of generation in waves with a slow twin of lists and loops, on tiny worlds."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.waves import CLUSTERS, KEPT, POLICIES, SHRINKAGE, World, fitted, kept, sizes, waves, world
from tests.examples import examples

CLUSTER = st.lists(st.booleans(), max_size=12)


def world_of(clusters: list[list[bool]]) -> World:
    """Build a simulated world from whether each image of each cluster passes."""
    passes = [passed for cluster in clusters for passed in cluster]
    starts = np.cumsum([0, *map(len, clusters)])
    return World(starts, np.cumsum([0, *passes]))


def slow(clusters: list[list[bool]], cap: int, policy: str) -> tuple[list[int], int]:
    """Simulate the waves image by image; return the requests of each wave and the number of kept images.

    At the start every image is unknown.
    """
    known: list[list[bool | None]] = [[None] * len(cluster) for cluster in clusters]
    asked: list[int] = []
    while True:
        answers = [answer for cluster in known for answer in cluster if answer is not None]
        overall = max(sum(answers), 1) / len(answers) if answers else 1.0
        n = 0
        for cluster, truth in zip(known, clusters, strict=True):
            inside = [at for at, answer in enumerate(cluster) if answer is not False][:cap]
            if all(cluster[at] for at in inside):
                continue  # decided: with unknown images counted as passing, all images inside the cap are known
            own = [answer for answer in cluster if answer is not None]
            rate = 1.0
            if policy == "overall":
                rate = overall
            elif policy != "none":
                rate = (sum(own) + SHRINKAGE * overall) / (len(own) + SHRINKAGE)
            if policy == "doubling":
                rate /= 2 ** (len(asked) - 1)
            lacking = cap - sum(own)
            wanted = lacking if not asked else math.ceil(lacking / rate)
            for at in [at for at, answer in enumerate(cluster) if answer is None][:wanted]:
                cluster[at] = truth[at]
                n += 1
        if not n:
            return asked, sum(min(cap, sum(bool(answer) for answer in cluster)) for cluster in known)
        asked.append(n)


@given(clusters=st.lists(CLUSTER, min_size=1, max_size=6), cap=st.integers(1, 5), policy=st.sampled_from(POLICIES))
@examples(200)
def test_waves_ask_and_keep_what_the_slow_loop_does(clusters: list[list[bool]], cap: int, policy: str):
    found = waves(world_of(clusters), cap, policy)
    assert (list(found.asked), found.kept) == slow(clusters, cap, policy)
    assert found.kept == sum(min(cap, sum(cluster)) for cluster in clusters)


@given(clusters=st.lists(CLUSTER, min_size=1, max_size=6), cap=st.integers(1, 5))
@examples(50)
def test_without_excess_no_more_is_asked_for_than_any_order_needs(clusters: list[list[bool]], cap: int):
    least = 0
    for cluster in clusters:
        passing = [at for at, passed in enumerate(cluster, 1) if passed]
        least += passing[cap - 1] if len(passing) >= cap else len(cluster)
    assert sum(waves(world_of(clusters), cap, "none").asked) == least


def test_sizes_have_the_mean_of_realsyn_and_no_fit_meets_the_impossible():
    shape = fitted(500)
    made = sizes(*shape, 500)
    assert made.mean() == pytest.approx(198, rel=0.01)
    held = {cap: kept(made * 0.85, cap) for cap in KEPT}
    assert held[20] >= 20 / 35 * held[35]
    assert all(held[cap] == pytest.approx(wanted, rel=0.1) for cap, wanted in KEPT.items())
    assert KEPT[20] < 20 / 35 * KEPT[35]


def test_a_world_passes_at_the_mean_and_its_clusters_the_more_alike_the_larger_the_concentration():
    of = [world(np.full(2_000, 100), k, np.random.default_rng(1)) for k in (2, 100)]
    shares = [each.known(each.sizes) / 100 for each in of]
    assert [share.mean() for share in shares] == pytest.approx([0.85, 0.85], abs=0.02)
    assert shares[0].std() > 3 * shares[1].std()
    assert CLUSTERS == 1e6
