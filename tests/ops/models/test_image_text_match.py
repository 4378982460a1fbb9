"""Matching scores equal those of transformers' own classes, whatever else is in the batch."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoProcessor, BlipForImageTextRetrieval, BridgeTowerForImageAndTextRetrieval

from pairmill.ops.models.matching.image_text_match import ImageTextMatch
from pairmill.ops.models.model_digest import ModelError
from tests.worlds.tiny_language import save_language_model
from tests.worlds.tiny_matcher import tiny_blip, tiny_bridgetower

TEXTS = ["a red key", "a picture of nothing at all", "x", "a red key", "two small boats on a lake"]
FAMILIES = [(tiny_blip, BlipForImageTextRetrieval), (tiny_bridgetower, BridgeTowerForImageAndTextRetrieval)]


def _pictures() -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    one, two = (rng.integers(0, 256, (40, 56, 3), np.uint8) for _ in range(2))
    return [one, two, one, two, one]


@pytest.mark.parametrize(("make", "kind"), FAMILIES)
def test_a_score_is_what_transformers_own_class_gives_to_the_pair_alone(
    make: Callable[[Path], str], kind: type, tmp_path: Path
):
    found = ImageTextMatch(make(tmp_path), batch_size=2)({"pixels": _pictures(), "text": TEXTS})["itm_score"]
    model, processor = kind.from_pretrained(tmp_path).eval(), AutoProcessor.from_pretrained(tmp_path)
    for picture, text, score in zip(_pictures(), TEXTS, found, strict=True):
        with torch.no_grad():
            answer = model(**processor(images=picture, text=text, return_tensors="pt"))
        logits = answer.itm_score if make is tiny_blip else answer.logits
        assert score == pytest.approx(logits.softmax(-1)[0, 1].item(), abs=2e-5)
    assert np.ptp(found) > 1e-3


def test_no_pairs_give_no_scores(tmp_path: Path):
    assert len(ImageTextMatch(tiny_blip(tmp_path))({"pixels": [], "text": []})["itm_score"]) == 0


def test_a_model_of_another_kind_is_refused_with_one_that_works(tmp_path: Path):
    with pytest.raises(ModelError, match=r"BLIP or BridgeTower.*name one such as hf:"):
        ImageTextMatch(save_language_model(tmp_path)).load()
