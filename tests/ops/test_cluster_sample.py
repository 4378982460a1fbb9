"""Intervals go by units: pictures of one unit resemble each other; intervals by pictures would be too narrow."""

import numpy as np

from pairmill.ops.whole.cluster_sample import interval, ratio_range, resampled_totals

UNITS = 400


def test_the_true_total_lies_inside_nine_times_in_ten_though_units_are_alike_inside():
    rng = np.random.default_rng(5)
    pictures = rng.integers(1, 12, UNITS)
    dropped = rng.binomial(pictures, rng.beta(0.4, 0.8, UNITS))  # a unit drops most of its pictures, or few
    inside = 0
    for seed in range(200):
        own = dropped[rng.permutation(UNITS)[:80]]
        found = interval(resampled_totals(own[own > 0][:, None].astype(float), 80, 0.2, seed)[:, 0] / 0.2)
        inside += found.low <= dropped.sum() <= found.high
    assert 165 <= inside <= 194


def test_a_whole_census_has_no_interval():
    found = interval(resampled_totals(np.ones((7, 1)), 7, 1.0)[:, 0])
    assert (found.low, found.value, found.high) == (7, 7, 7)


def test_equal_seeds_give_equal_intervals():
    counts = np.arange(40.0)[:, None]
    first, again, other = (interval(resampled_totals(counts, 50, 0.1, seed)[:, 0]) for seed in (3, 3, 4))
    assert first == again != other and first.low < first.value == 780 < first.high


def test_a_single_item_says_its_rate_within_a_factor_of_two():
    found = ratio_range([(10.0, 5.0)])
    assert (found.low, found.value, found.high) == (1, 2, 4)
