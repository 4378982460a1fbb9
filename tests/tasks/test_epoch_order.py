"""The order of an epoch gives each pair once, equally to all ranks, and goes on anywhere."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pairmill.flows.api.training_pairs import windows


def served(n: int, seed: int, epoch: int, *consumer: int, done: int = 0) -> list[int]:
    """Return the numbers of the pairs that a consumer uses, in their order."""
    found: list[int] = []
    for spans, order in windows(n, seed, epoch, *consumer, done=done):
        read = np.concatenate([np.arange(first, last) for first, last in spans])
        found += read[order].tolist()
    return found


@given(n=st.integers(0, 9000), ranks=st.integers(1, 4), workers=st.integers(1, 3), epoch=st.integers(0, 3))
def test_ranks_get_equally_many_pairs_and_no_pair_comes_twice(n: int, ranks: int, workers: int, epoch: int):
    by_rank = [
        [pair for worker in range(workers) for pair in served(n, 5, epoch, rank, ranks, worker, workers)]
        for rank in range(ranks)
    ]
    together = [pair for pairs in by_rank for pair in pairs]
    assert {len(pairs) for pairs in by_rank} == {n // ranks}
    assert len(set(together)) == len(together) > n - ranks and set(together) <= set(range(n))


@given(n=st.integers(1, 6000), share=st.floats(0, 1), seed=st.integers(0, 2**32))
def test_an_epoch_goes_on_behind_what_was_used(n: int, share: float, seed: int):
    whole, done = served(n, seed, 1), int(share * n)
    assert served(n, seed, 1, done=done) == whole[done:]


def test_epochs_and_seeds_differ_and_neighbours_are_apart():
    first, second, other = (served(5000, seed, epoch) for seed, epoch in ((0, 0), (0, 1), (1, 0)))
    assert first != second and first != other
    assert served(1000, 0, 0)[:6] == [203, 718, 734, 674, 455, 814]  # a release may not change an order
    neighbours = np.abs(np.diff(first))
    assert np.mean(neighbours == 1) < 0.02 and np.mean(neighbours > 256) > 0.5
