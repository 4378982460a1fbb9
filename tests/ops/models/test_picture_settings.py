"""Tiles and sizes of pictures: one name each for all processors, tokens as counted, weights loaded once."""

import numpy as np
import pytest
import torch

from pairmill.ops.models.backends import VisionLanguageModel
from pairmill.ops.models.model_digest import ModelError
from pairmill.ops.models.vision_language import vlm_loaded
from tests.worlds.model_answers import generate
from tests.worlds.tiny_families import save_family

Settings = tuple[tuple[str, int], ...]
WIDE = np.random.default_rng(1).integers(0, 255, (64, 124, 3), np.uint8)


@pytest.fixture(scope="module")
def specs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    torch.set_num_threads(1)
    names = ("smolvlm", "internvl", "llava_next", "qwen2_5_vl", "gemma3", "llava", "llava_onevision")
    return {name: save_family(tmp_path_factory.mktemp(name), name) for name in names}


def tokens(spec: str, settings: Settings) -> int:
    """Count the tokens of the wide picture in a prompt of one word."""
    model = VisionLanguageModel(spec, processor=settings)
    (answer,) = generate(model, [WIDE], ["what"], 2)
    (bare,) = generate(VisionLanguageModel(spec), [None], ["what"], 2)
    return answer.prompt_tokens - bare.prompt_tokens


@pytest.mark.parametrize(
    ("family", "settings", "expected"),
    [
        ("smolvlm", (), 79),  # twelve tiles and the whole, of 4 tokens, with their signs
        ("smolvlm", (("tiles", 1),), 7),
        ("smolvlm", (("tiles", 4),), 31),
        ("smolvlm", (("longest_edge", 64),), 31),
        ("internvl", (), 14),  # two tiles and the whole
        ("internvl", (("tiles", 1),), 6),
        ("qwen2_5_vl", (), 12),
        ("qwen2_5_vl", (("max_pixels", 1024),), 4),
        ("qwen2_5_vl", (("tiles", 1),), 12),  # it is never cut
        ("gemma3", (("tiles", 1),), 6),
        ("llava", (("tiles", 1),), 16),
        ("llava_onevision", (), 52),  # two tiles and the whole, the padding cut off
        ("llava_onevision", (("tiles", 1),), 26),
    ],
)
def test_settings_have_one_name_for_all_processors(
    family: str, settings: Settings, expected: int, specs: dict[str, str]
):
    assert tokens(specs[family], settings) == expected


@pytest.mark.parametrize(
    ("family", "setting"),
    [("llava", ("tiles", 2)), ("qwen2_5_vl", ("tiles", 2)), ("qwen2_5_vl", ("longest_edge", 64)),
     ("llava_next", ("tiles", 1)), ("smolvlm", ("max_pixels", 999)), ("internvl", ("longest_edge", 64))],
)  # fmt: skip
def test_a_setting_that_a_processor_lacks_is_refused_with_the_remedy(
    family: str, setting: tuple[str, int], specs: dict[str, str]
):
    with pytest.raises(ModelError, match=rf"has no setting for `{setting[0]}: {setting[1]}`; leave it out"):
        VisionLanguageModel(specs[family], processor=(setting,)).load()


def test_two_captioners_of_one_model_share_its_weights_and_keep_their_own_pictures(specs: dict[str, str]):
    whole, cut = (vlm_loaded.load(specs["smolvlm"], "fp32", settings) for settings in ((("tiles", 1),), ()))
    assert whole.model is cut.model and whole.answerer is cut.answerer
    few, many = (each.prepare([WIDE], ["what"]).inputs["input_ids"].shape[1] for each in (whole, cut))
    assert few < many


@pytest.mark.parametrize(("family", "tiles"), [("llava_next", 2), ("llava_onevision", 1)])
def test_a_model_joins_tiles_by_the_grids_of_the_captioner_that_asks(family: str, tiles: int, specs: dict[str, str]):
    few, all_ = VisionLanguageModel(specs[family], processor=(("tiles", tiles),)), VisionLanguageModel(specs[family])
    pictures = [np.random.default_rng(7).integers(0, 255, (70 * n, 60, 3), np.uint8) for n in range(1, 4)]
    prompts = ["what is it"] * 3
    first = [generate(model, list(pictures), prompts, 6) for model in (few, all_)]
    again = [generate(model, list(pictures), prompts, 6) for model in (few, all_)]
    assert [[each.text for each in found] for found in again] == [[each.text for each in found] for found in first]
    assert first[0][0].prompt_tokens < first[1][0].prompt_tokens
