"""`pairmill doctor RECIPE` loads the captioners that are on this machine, and says what they will do."""

from pathlib import Path

import pytest

from pairmill.flows.doctor.examinations import captioner_costs
from pairmill.flows.machine.finding import Finding, Patient
from pairmill.flows.run.settings import load_recipe
from tests.worlds.tiny_families import save_family


def found(spec: str, **settings: str) -> list[Finding]:
    given = {"models.captioner": spec, **{f"captioners.0.{name}": value for name, value in settings.items()}}
    return list(captioner_costs(Patient("lake", load_recipe("demo", given))))


def test_it_tells_the_tokens_of_a_picture_and_that_decoding_is_captured(tmp_path: Path):
    spec = save_family(tmp_path, "smolvlm")
    small = {"precision": "fp32", "side": "64", "max_tokens": "128"}
    [many], [one] = found(spec, **small), found(spec, **small, processor="{tiles: 1}")
    assert "tokens a picture: 103 of 64 x 64, 79 of 85 x 64, 55 of 192 x 64" in many.text
    assert "tokens a picture: 7 of 64 x 64, 7 of 85 x 64, 7 of 192 x 64" in one.text
    assert "SmolVLMForConditionalGeneration, 0.00 GB of weights in fp32" in one.text
    assert "4 of 4 answers" in one.text and "decoding is captured on a GPU" in one.text and one.state == "ok"
    # 2 layers of keys and values, 2 heads of 8 numbers, 4 bytes each; 7 + 40 + 128 tokens
    assert "0.04 MB a row with 128 tokens of answer" in one.text


def test_it_says_why_decoding_is_not_captured(tmp_path: Path):
    [told] = found(save_family(tmp_path, "paligemma"), precision="fp32", side="32")
    assert "step by step: on a trial, PaliGemmaForConditionalGeneration gave another token" in told.text


@pytest.mark.parametrize("spec", ["hf:/no/such/folder", "hf:nobody/nothing", "http:a@https://b/v1"])
def test_a_model_that_is_not_on_this_machine_is_not_loaded(spec: str):
    assert found(spec) == []
