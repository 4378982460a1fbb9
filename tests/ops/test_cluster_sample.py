"""Intervals go by units: pictures of one unit resemble each other; intervals by pictures would be too narrow."""

import numpy as np
import pytest
from scipy import stats

from pairmill.ops.whole.cluster_sample import counted, jackknife, poisson_limits, ratio_range, student

UNITS = 400


def test_the_true_total_lies_inside_nine_times_in_ten_though_units_are_alike_inside():
    rng = np.random.default_rng(5)
    pictures = rng.integers(1, 12, UNITS)
    dropped = rng.binomial(pictures, rng.beta(0.4, 0.8, UNITS))  # a unit drops most of its pictures, or few
    inside = 0
    for _ in range(200):
        drawn = rng.permutation(UNITS)[:80]
        own = dropped[drawn]
        (found,) = jackknife(lambda weights, own=own: np.array([weights @ own / 0.2]), 80, 0.2)
        inside += found.low <= dropped.sum() <= found.high
    assert 165 <= inside <= 194


def test_a_whole_census_has_no_interval():
    (found,) = jackknife(lambda weights: np.array([weights.sum()]), 7, 1.0)
    assert (found.low, found.value, found.high) == (7, 7, 7)


@pytest.mark.parametrize("n", [0, 1, 5, 40])
def test_the_limits_of_a_count_are_those_of_garwood(n: int):
    low = stats.chi2.ppf(0.05, 2 * n) / 2 if n else 0.0
    assert poisson_limits(n) == pytest.approx((low, stats.chi2.ppf(0.95, 2 * n + 2) / 2), abs=1e-6)
    assert counted(n, 1.0) == (n, n)


def test_the_quantiles_are_those_of_student():
    for degrees in (5, 10, 19):
        assert student(degrees) == pytest.approx(stats.t.ppf(0.95, degrees), rel=0.01)


def test_a_single_item_says_its_rate_within_a_factor_of_two():
    found = ratio_range([(10.0, 5.0)])
    assert (found.low, found.value, found.high) == (1, 2, 4)
