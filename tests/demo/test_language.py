"""The shipped language model tells the world's sentences from spoiled ones, by the thresholds of its measurement."""

import json
from pathlib import Path

import numpy as np
import pytest

from infra.demo.measure_language import COMMON, MODEL, SPOILED
from infra.demo.prose import BOILERPLATE, sentence
from pairmill.ops.models.language.perplexity import Perplexity

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def kept() -> dict[str, float]:
    """The share between the thresholds, of 200 sentences, of what spoiling makes of them, and of what is too easy."""
    rng = np.random.default_rng(99)
    good = [sentence(rng, "distractor") for _ in range(200)]
    texts = {"good": good, "stock": BOILERPLATE.split("\n"), "said over": [f"{word} " * 12 for word in COMMON]}
    texts |= {name: [SPOILED[name](rng, text) for text in good] for name in ("shuffled", "swapped")}
    told = json.loads((ROOT / "infra/bench/results/demo_language.json").read_text())["thresholds"]
    values = {name: Perplexity(f"hf:{MODEL}")({"text": each})["perplexity"] for name, each in texts.items()}
    return {name: float(((each >= told["low"]) & (each <= told["high"])).mean()) for name, each in values.items()}


def test_good_sentences_lie_between_the_thresholds(kept: dict[str, float]):
    assert kept["good"] >= 0.9


def test_garbled_sentences_lie_above_them(kept: dict[str, float]):
    assert max(kept["shuffled"], kept["swapped"]) <= 0.06


def test_stock_phrases_and_most_of_what_says_a_common_word_over_lie_below(kept: dict[str, float]):
    assert kept["stock"] == 0
    assert kept["said over"] <= 0.2


def test_what_ships_of_it_is_small():
    assert sum(file.stat().st_size for file in MODEL.iterdir()) <= 3_000_000
