"""Matching scores equal those of transformers' own classes, whatever else is in the batch."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image
from transformers import (
    AutoModelForImageTextToText,
    AutoProcessor,
    BlipForImageTextRetrieval,
    BridgeTowerForImageAndTextRetrieval,
)

from infra.demo.sheets import names, pictures
from pairmill.ops.models.matching.image_text_match import ImageTextMatch
from pairmill.ops.models.matching.image_text_match_loaded import QUESTION
from pairmill.ops.models.model_digest import ModelError
from tests.worlds.generated import ROOT
from tests.worlds.tiny import save_clip
from tests.worlds.tiny_language import save_language_model
from tests.worlds.tiny_matcher import tiny_blip, tiny_bridgetower
from tests.worlds.tiny_vlm import save_vlm

TEXTS = ["a red key", "a picture of nothing at all", "x", "a red key", "two small boats on a lake"]
CAPTIONER, MATCHER = (ROOT / "infra/demo/models" / name for name in ("captioner", "matcher"))
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


def test_a_vision_language_model_is_asked_and_scores_each_pair_as_alone():
    spec = f"hf:{CAPTIONER}"
    found = ImageTextMatch(spec, batch_size=2)({"pixels": _pictures(), "text": TEXTS})["itm_score"]
    model = AutoModelForImageTextToText.from_pretrained(CAPTIONER, dtype=torch.float32).eval()
    processor = AutoProcessor.from_pretrained(CAPTIONER)
    words = [
        [processor.tokenizer(f"{word}").input_ids[0] for word in words] for words in (("yes", "Yes"), ("no", "No"))
    ]
    for picture, text, score in zip(_pictures(), TEXTS, found, strict=True):
        asked = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": QUESTION.format(text=text)}]}]
        prompt = processor.apply_chat_template(asked, add_generation_prompt=True, tokenize=False)
        with torch.no_grad():
            logits = model(**processor(text=[prompt], images=[picture], return_tensors="pt")).logits[0, -1]
        yes, no = (logits.softmax(-1)[ids].sum().item() for ids in words)
        assert score == pytest.approx(yes / (yes + no), abs=2e-5)
    assert np.ptp(found) > 1e-4


def test_a_model_whose_tokenizer_begins_yes_and_no_alike_is_refused(tmp_path: Path):
    with pytest.raises(ModelError, match="begins 'yes' and 'no' by one token"):
        ImageTextMatch(save_vlm(tmp_path)).load()


def test_a_clip_that_was_not_trained_on_pairs_is_refused(tmp_path: Path):
    save_clip(tmp_path)
    with pytest.raises(ModelError, match=r"no logit_bias.*name one such as open_clip"):
        ImageTextMatch(f"open_clip:local-dir:{tmp_path}").load()


def test_the_shipped_model_scores_as_open_clip_does_and_ranks_a_glyphs_name_above_others():
    sheet, known = pictures(), names()
    shown = [known.index(name) for name in ("butterfly", "spider web", "peacock")]
    tiles = [np.full((128, 128, 3), 230, np.uint8) for _ in shown]
    for tile, place in zip(tiles, shown, strict=True):
        glyph = Image.fromarray(sheet[place]).resize((96, 96))
        canvas = Image.fromarray(tile)
        canvas.paste(glyph, (16, 16), glyph)
        tile[:] = np.asarray(canvas)
    texts = [f"A small {known[place]} on a plain white background." for place in shown]
    spec = f"open_clip:local-dir:{MATCHER}"
    found = ImageTextMatch(spec)({"pixels": [tile for tile in tiles for _ in texts], "text": texts * 3})["itm_score"]
    assert found.reshape(3, 3).argmax(1).tolist() == [0, 1, 2]
    model, _, prepare = open_clip.create_model_and_transforms(f"local-dir:{MATCHER}")
    with torch.no_grad():
        images = torch.stack([prepare(Image.fromarray(tile)) for tile in tiles])
        logits = model.eval().get_logits(images, open_clip.get_tokenizer(f"local-dir:{MATCHER}")(texts))[0]
    assert found == pytest.approx(logits.sigmoid().flatten().numpy(), abs=0.02)  # Pillow resizes a little otherwise


def test_no_pairs_give_no_scores(tmp_path: Path):
    assert len(ImageTextMatch(tiny_blip(tmp_path))({"pixels": [], "text": []})["itm_score"]) == 0


def test_a_model_of_another_kind_is_refused_with_one_that_works(tmp_path: Path):
    with pytest.raises(ModelError, match=r"BLIP or BridgeTower.*name one such as hf:"):
        ImageTextMatch(save_language_model(tmp_path)).load()
