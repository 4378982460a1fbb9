"""Thresholds from judgements: exact bounds against scipy, the guarantee over seeds, and what is no label."""

import random

import pytest

from pairmill.catalog.queries.figures.canary_rates import labels_needed, upper_bound
from pairmill.catalog.queries.judge.judged_samples import fixed_sequence

SHARE, CONFIDENCE = 0.05, 0.9


@pytest.mark.parametrize("labels", [1, 5, 45, 77, 300])
@pytest.mark.parametrize("confidence", [0.8, 0.9, 0.99])
def test_the_bound_is_that_of_scipys_beta_distribution(labels: int, confidence: float):
    from scipy.stats import beta  # 1 CPU s

    for wrong in {0, 1, 2, labels // 2, labels - 1, labels}:
        exact = beta.ppf(confidence, wrong + 1, labels - wrong) if wrong < labels else 1.0
        assert upper_bound(wrong, labels, confidence) == pytest.approx(exact, abs=1e-9)


def test_five_percent_at_ninety_needs_45_labels_or_77_with_one_error_or_105_with_two():
    assert [labels_needed(wrong, SHARE, CONFIDENCE) for wrong in (0, 1, 2)] == [45, 77, 105]
    for wrong, n in ((0, 45), (1, 77), (2, 105)):
        assert upper_bound(wrong, n, CONFIDENCE) <= SHARE < upper_bound(wrong, n - 1, CONFIDENCE)


def test_the_first_failure_stops_the_test_and_looser_candidates_are_not_asked():
    labels = [(0.9, False)] * 50 + [(0.5, True)] * 3 + [(0.3, False)] * 400
    found = fixed_sequence(labels, [(0.2, 453), (0.8, 60), (0.4, 70)], SHARE, CONFIDENCE)
    assert [(each.threshold, each.outcome) for each in found] == [(0.8, "holds"), (0.4, "fails"), (0.2, "untested")]
    assert found[2].bound <= SHARE, "by itself the loosest would have passed"
    assert [each.lacking for each in found] == [0, labels_needed(3, SHARE, CONFIDENCE) - 53, 0]


def test_a_candidate_that_the_sample_is_too_small_for_does_not_stop_the_test():
    labels = [(0.9, False)] * 10 + [(0.5, False)] * 100
    found = fixed_sequence(labels, [(0.4, 1_100), (0.8, 100)], SHARE, CONFIDENCE)
    assert [(each.outcome, each.lacking) for each in found] == [("too strict", 35), ("holds", 0)]


def share_wrong(value: float) -> float:
    """The truth of the simulation: below 0.5 a tenth of the items is wrong, above it ever fewer."""
    return 0.12 if value < 0.5 else 0.48 * (1 - value) ** 2


def true_share(threshold: float) -> float:
    """The share of wrong items at or above a threshold, of values that are uniform from 0 to 1."""
    grid = [threshold + (1 - threshold) * (n + 0.5) / 2_000 for n in range(2_000)]
    return sum(map(share_wrong, grid)) / len(grid)


def test_over_200_seeds_a_larger_share_of_wrong_items_passes_in_at_most_one_of_ten():
    candidates = [(n / 10, 10 - n) for n in range(10)]
    truth = {threshold: true_share(threshold) for threshold, _ in candidates}
    assert truth[0.0] > SHARE > truth[0.7]
    chosen = []
    for seed in range(200):
        draw = random.Random(seed)
        values = [draw.random() for _ in range(400)]
        labels = [(value, draw.random() < share_wrong(value)) for value in values]
        holding = [each for each in fixed_sequence(labels, candidates, SHARE, CONFIDENCE) if each.outcome == "holds"]
        chosen.append(min((each.threshold for each in holding), default=None))
    broken = sum(each is not None and truth[each] > SHARE for each in chosen)
    # At most a tenth in expectation; 30 of 200 would be 2.4 standard deviations above.
    assert broken <= 30, broken
    assert sum(each is not None for each in chosen) > 100, "the test has power"
