"""Batches by their cost: padding costs prefill, few rows cost decoding."""

from itertools import combinations, pairwise

import numpy as np
import pytest

from infra.bench.refill import LENGTHS
from pairmill.ops.models.generate.batching import (
    PREFILL,
    STEPS,
    WEIGHTS,
    padded_batches,
    prefill_parts,
    refill_groups,
    similar_length_batches,
)


def test_batches_by_cost_are_larger_than_batches_of_little_padding_and_cheaper():
    """512 prompts of a fuser were decoded in batches of some 50 rows, whatever was fitted."""
    lengths = LENGTHS["fuser"]

    def cost(batches: list[list[int]]) -> int:
        return sum(len(batch) * max(lengths[row] for row in batch) + STEPS * WEIGHTS for batch in batches)

    starved = similar_length_batches(lengths, 512)
    assert np.mean([len(batch) for batch in starved]) < 64
    assert cost(padded_batches(lengths, 512, 0)) < cost(starved)


def test_keys_and_values_have_room_however_long_a_prompt_is():
    lengths = [100] * 300 + [4000, 2000, 90]
    assert all(
        len(batch) * max(lengths[row] for row in batch) <= 25_600 for batch in padded_batches(lengths, 256, 25_600)
    )
    assert [1] * 2 in [[len(batch) for batch in padded_batches([5000, 4000], 256, 3000)]]


def test_a_prefill_has_at_most_a_tenth_of_the_slots_and_the_tokens_that_gain_something():
    for groups in (prefill_parts([3000] * 20), refill_groups([3000] * 20, 256)):
        assert all(3000 * len(group) <= PREFILL for group in groups) and sum(map(len, groups)) == 20
    assert {len(group) for group in refill_groups([100] * 60, 60)} == {6}
    assert refill_groups([9, 12], 4) == [[1], [0]]


@pytest.mark.parametrize("seed", range(6))
def test_no_other_cut_is_cheaper(seed: int):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 3000, 9).tolist()

    def cost(batches: list[list[int]]) -> int:
        return sum(len(batch) * max(lengths[row] for row in batch) + STEPS * WEIGHTS for batch in batches)

    order = sorted(range(9), key=lambda row: -lengths[row])
    cuts = [(0, *cut, 9) for n in range(9) for cut in combinations(range(1, 9), n)]
    every = [[order[a:b] for a, b in pairwise(cut)] for cut in cuts]
    fits = [each for each in every if max(map(len, each)) <= 4]
    assert cost(padded_batches(lengths, 4, 0)) == min(map(cost, fits))
