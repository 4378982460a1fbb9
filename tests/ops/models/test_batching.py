"""Batches by their cost, on a simulated card: little padding in prefill, and the rows that were fitted in decoding."""

from itertools import combinations, pairwise

import numpy as np
import pytest

from pairmill.ops.models.generate.batching import (
    PREFILL,
    STEPS,
    WEIGHTS,
    full_batches,
    padded_batches,
    prefill_parts,
    similar_length_batches,
)

RNG = np.random.default_rng(3)
QWEN = [
    40 + round(448 * ratio / 28) * round(448 / 28) for ratio in np.exp(RNG.uniform(0, np.log(3), 512))
]  # 448 pixels by up to 3 : 1, a token for 28 x 28
LENGTHS = {
    "fuser": np.round(np.exp(RNG.normal(np.log(150), 0.35, 512))).astype(int).tolist(),
    "qwen": QWEN,
    "internvl": [40 + 256 * tiles for tiles in RNG.choice([1, 3, 4, 5, 7, 9, 10, 13], 512)],
    "one tile": [128] * 512,
}


class Card:
    """A card whose clock counts prefilled tokens: reading the weights takes WEIGHTS, and so does a step of decoding."""

    def __init__(self) -> None:
        self.prefilled = self.wasted = self.clock = 0

    def prefill(self, lengths: list[int]) -> None:
        padded = len(lengths) * max(lengths)
        self.prefilled += padded
        self.wasted += padded - sum(lengths)
        self.clock += WEIGHTS + padded

    def decode(self) -> None:
        self.clock += STEPS * WEIGHTS

    def run(self, lengths: list[int], batches: list[list[int]], in_parts: bool) -> "Card":
        for batch in batches:
            rows = [lengths[row] for row in batch]
            for part in prefill_parts(rows) if in_parts else [range(len(rows))]:
                self.prefill([rows[row] for row in part])
            self.decode()
        return self

    @property
    def padding(self) -> float:
        return self.wasted / self.prefilled


@pytest.mark.parametrize("name", LENGTHS)
@pytest.mark.parametrize("fitted", [64, 128, 256, 512])
def test_decoding_has_the_rows_that_were_fitted_and_prefill_little_padding(name: str, fitted: int):
    lengths = LENGTHS[name]
    batches = full_batches(lengths, fitted, 0)
    assert sorted(row for batch in batches for row in batch) == list(range(512))
    assert np.mean([len(batch) for batch in batches]) >= 0.9 * fitted
    card = Card().run(lengths, batches, in_parts=True)
    assert card.padding <= 0.05
    before = Card().run(lengths, similar_length_batches(lengths, fitted), in_parts=False)
    assert card.clock <= before.clock * 1.01


def test_the_rule_of_little_padding_starves_decoding_and_costs_do_not():
    """512 prompts of a fuser were decoded in batches of some 50 rows, whatever was fitted."""
    lengths = LENGTHS["fuser"]
    starved = similar_length_batches(lengths, 512)
    assert np.mean([len(batch) for batch in starved]) < 64
    whole = padded_batches(lengths, 512, 0)
    clocks = [Card().run(lengths, each, in_parts=False).clock for each in (whole, starved)]
    parts = Card().run(lengths, full_batches(lengths, 512, 0), in_parts=True).clock
    assert parts < clocks[0] < clocks[1]


def test_keys_and_values_have_room_however_long_a_prompt_is():
    lengths = [100] * 300 + [4000, 2000, 90]
    for batches in (full_batches(lengths, 256, 25_600), padded_batches(lengths, 256, 25_600)):
        assert all(len(batch) * max(lengths[row] for row in batch) <= 25_600 for batch in batches)
    assert [1] * 2 in [[len(batch) for batch in full_batches([5000, 4000], 256, 3000)]]
    parts = prefill_parts([3000] * 20)
    assert all(3000 * len(part) <= PREFILL for part in parts) and sum(map(len, parts)) == 20


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
