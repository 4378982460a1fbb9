"""Repeats of contents are estimated from a sample of units: unbiased for pairs, and mostly inside the interval."""

import numpy as np
import pytest

from pairmill.ops.whole.repeats import repeats, repeats_range

SINGLE = 3000


def seen(sizes: list[int], share: float, seed: int) -> np.ndarray:
    """Draw each unit of each content with the chance ``share``; return the units seen of those that are seen."""
    found = np.random.default_rng(seed).binomial(np.array([1] * SINGLE + sizes), share)
    return found[found > 0]


@pytest.mark.parametrize(
    ("sizes", "share"),
    [([2] * 200, 0.25), ([2] * 50 + [3] * 20 + [40] * 3, 0.25), ([1000] * 3 + [2] * 100, 0.1)],
)
def test_the_whole_has_as_many_repeats_as_forecast(sizes: list[int], share: float):
    true = sum(sizes) - len(sizes)
    drawn = [seen(sizes, share, seed) for seed in range(30)]
    assert np.mean([repeats(each, share) for each in drawn]) == pytest.approx(true, rel=0.15)
    limits = [repeats_range(each, share) for each in drawn]
    assert sum(low <= true <= high for low, high in limits) >= 24


def test_pairs_alone_give_the_unbiased_pair_estimate():
    counts = np.array([1] * 900 + [2] * 10)
    assert repeats(counts, 0.2) == pytest.approx(10 / 0.2**2, rel=0.2)


def test_without_a_repeat_the_upper_limit_is_that_of_pairs():
    assert repeats_range(np.ones(500, int), 0.1) == pytest.approx((0, 299.6), abs=0.1)


def test_of_all_units_nothing_is_left_to_estimate():
    counts = np.array([1, 1, 4])
    assert (repeats(counts, 1.0), repeats_range(counts, 1.0)) == (3, (3, 3))
