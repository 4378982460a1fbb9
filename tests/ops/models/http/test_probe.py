import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from pairmill.ops.models.backends import VisionLanguageModel
from pairmill.ops.models.http.probe import LEAST_AGREEMENT, PROBE_TOKENS, PROMPT, agreement, check, pictures
from pairmill.ops.models.model_error import ModelError
from tests.examples import slow_but
from tests.worlds.model_answers import generate

CAPTIONER = Path("infra/demo/models/captioner").absolute()


def answers(folder: Path, precision: str = "fp32") -> tuple[str, ...]:
    model = VisionLanguageModel(f"hf:{folder}", precision, batch_size=8)
    return tuple(each.text for each in generate(model, pictures(), [PROMPT] * len(pictures()), PROBE_TOKENS))  # pyright: ignore[reportArgumentType]


def noisy(folder: Path, share: float, seed: int) -> Path:
    """Copy the captioner with each weight changed by a normal ``share`` of itself."""
    shutil.copytree(CAPTIONER, folder)
    rng = torch.Generator().manual_seed(seed)
    for file in folder.glob("*.safetensors"):
        weights = {
            name: weight * (1 + share * torch.randn(weight.shape, generator=rng)).to(weight.dtype)
            for name, weight in load_file(file).items()
        }
        save_file(weights, file, metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def known() -> tuple[str, ...]:
    torch.set_num_threads(1)
    return answers(CAPTIONER)


@pytest.mark.slow
def test_the_same_weights_in_another_precision_are_the_model_that_it_was(known: tuple[str, ...]):
    assert len(set(known)) == len(known), "pictures of which a model says the same tell nothing"
    assert check("model", answers(CAPTIONER, "bf16"), known) > LEAST_AGREEMENT + 0.1


@pytest.mark.parametrize("seed", slow_but([0], range(3)))
def test_weights_that_are_rounded_pass_and_others_do_not(seed: int, known: tuple[str, ...], tmp_path: Path):
    rounded = answers(noisy(tmp_path / "rounded", 0.004, seed), "fp32")
    assert check("model", rounded, known) > LEAST_AGREEMENT + 0.1
    other = answers(noisy(tmp_path / "other", 0.3, seed))
    with pytest.raises(ModelError, match="is not the model that it was"):
        check("model", other, known)


def test_words_count_in_their_order_and_in_any_case():
    assert agreement(("A red disc",), ("a red disc",)) == 1.0
    assert agreement(("",), ("",)) == 1.0
    assert agreement(("one two three",), ("three four five",)) == pytest.approx(1 / 3)
