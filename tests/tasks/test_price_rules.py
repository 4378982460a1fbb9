"""The prices of rules, by cuts that switch several of them at once."""

import numpy as np
import pytest

from pairmill.ops.whole import cut_trials
from pairmill.ops.whole.cut_trials import Pool, centred, kinds_of
from pairmill.tasks.compare_cuts import price_rules
from tests.worlds.planted_pairs import planted


def test_harmful_rules_rank_last_in_the_order_of_their_harm(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cut_trials, "SAMPLES", (0, 10_000, 10_000))
    pictures, texts, is_right = planted(500, 3, wrong=0.3)
    vectors, raw, rng = centred(pictures), np.stack([np.arange(500)] * 2, 1), np.random.default_rng(3)
    pool = Pool((vectors, centred(texts)), kinds_of(vectors), raw, raw[is_right])
    failed = {name: is_right & (rng.random(500) < share) for name, share in (("much", 0.6), ("some", 0.3))}
    lines = price_rules(pool, failed | {"helps": ~is_right}, 8, lambda line: None)
    assert [line.arm for line in lines] == ["rule helps", "rule some", "rule much"]
    assert lines[0].verdict == "better" and lines[2].verdict == "worse"
