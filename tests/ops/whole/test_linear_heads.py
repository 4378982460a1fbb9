"""Linear heads by CLIP's loss, and the intervals of paired differences."""

import numpy as np
import pytest

from pairmill.ops.whole import cut_trials
from pairmill.ops.whole.cut_trials import Pool, centred, difference, kinds_of, random_arm, recall, recalls, train_heads
from tests.worlds.planted_pairs import planted


def test_heads_find_right_pairs_again_repeat_exactly_and_count_an_equal_text_as_right():
    pictures, texts, _ = planted(300, 5, wrong=0)
    features, pairs = (centred(pictures), centred(texts)), np.stack([np.arange(200)] * 2, 1)
    heads = train_heads(features, pairs, 20_000, 1)
    assert all(np.array_equal(*each) for each in zip(heads, train_heads(features, pairs, 20_000, 1), strict=True))
    unseen = tuple(each[200:] for each in features)
    assert recall((unseen[0], unseen[1]), heads, np.arange(100)) > 0.5
    rng = np.random.default_rng(0)
    chance = tuple(rng.standard_normal((16, 128)).astype(np.float32) for _ in range(2))
    assert recall((unseen[0], unseen[1]), (chance[0], chance[1]), np.arange(100)) < 0.2
    assert recall((unseen[0], unseen[1]), (chance[0], chance[1]), np.zeros(100, int)) == 1


def test_an_interval_is_scipys_and_a_winner_needs_an_interval_without_0_and_enough_power():
    from scipy import stats  # 1 CPU s

    values = [0.02, 0.05, 0.01, 0.04, 0.03, 0.02, 0.06, 0.03]
    found = difference(values)
    low, high = stats.t.interval(0.95, 7, np.mean(values), stats.sem(values))
    assert (found.mean - found.half, found.mean + found.half) == pytest.approx((low, high))
    assert found.verdict == "better" and difference([-each for each in values]).verdict == "worse"
    assert difference(values, detectable=0.04).verdict == "too few to tell"  # the controls spread more than the cut
    assert difference([0.1, -0.1] * 4).verdict == "too few to tell"
    # Of differences as large as what is detectable, POWER give an interval without 0.
    rng, at = np.random.default_rng(1), difference(values).detectable / stats.sem(values)
    shown = [difference(at / 8**0.5 + rng.standard_normal(8)) for _ in range(500)]
    assert 0.74 < np.mean([each.mean > each.half for each in shown]) < 0.88


@pytest.mark.slow
def test_oracle_beats_filter_beats_random_on_kinds_that_no_arm_saw(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cut_trials, "SAMPLES", (20, 16_000, 16_000))
    pictures, texts, is_right = planted(600, 2)
    rng = np.random.default_rng(2)
    vectors, raw = centred(pictures), np.stack([np.arange(600)] * 2, 1)
    pool = Pool((vectors, centred(texts)), kinds_of(vectors), raw, raw[is_right])
    cut = raw[rng.random(600) < np.where(is_right, 0.8, 0.2)]
    arms = {"raw": raw, "cut": cut, "oracle": raw[is_right]}
    found = [
        recalls(pool, {**arms, "random": random_arm(raw, len(cut), seed)}, {"kept": pool.kept_kinds(cut)}, seed, 300)
        for seed in range(8)
    ]
    of = {arm: [each[arm]["unseen"] for each in found] for arm in found[0]}
    assert np.mean(of["oracle"]) > np.mean(of["cut"]) > np.mean(of["random"])
    assert difference(np.subtract(of["oracle"], of["raw"]).tolist()).verdict == "better"
    assert difference(np.subtract(of["random"], of["raw"]).tolist()).verdict != "better"
    again = recalls(pool, {"raw": raw}, {"kept": pool.kept_kinds(cut)}, 0, 300)
    assert again["raw"] == found[0]["raw"]  # the split is the seed's, whichever arms are trained


@pytest.mark.slow
def test_arms_of_any_size_take_equal_steps_so_that_fewer_pairs_are_never_worth_more(monkeypatch: pytest.MonkeyPatch):
    """By batches of each arm's own size, 128 of a half and 256 of all, a half had twice the steps and seemed better."""
    monkeypatch.setattr(cut_trials, "SAMPLES", (0, 10_000, 10_000))
    pictures, texts, is_right = planted(500, 3, wrong=0.3)
    vectors, raw = centred(pictures), np.stack([np.arange(500)] * 2, 1)
    pool = Pool((vectors, centred(texts)), kinds_of(vectors), raw, raw[is_right])
    arms = {"raw": raw} | {f"lot {n}": random_arm(raw, 400, n) for n in range(4)}
    found = [recalls(pool, arms, {}, seed, 400) for seed in range(5)]
    gains = [each[f"lot {n}"]["unseen"] - each["raw"]["unseen"] for each in found for n in range(4)]
    assert np.mean(gains) < 0


def test_a_kind_with_a_single_picture_and_a_pool_of_few_are_refused():
    alone = np.eye(16)[np.r_[np.zeros(60, int), 1]]
    with pytest.raises(ValueError, match="a single picture, even of four kinds"):
        kinds_of(alone.astype(np.float32))
    with pytest.raises(ValueError, match="39 pictures; a proof needs 40"):
        kinds_of(alone[:39].astype(np.float32))
