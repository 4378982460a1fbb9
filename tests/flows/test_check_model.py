"""`pairmill check-model` says what a model will do before a run."""

from pathlib import Path

import pytest

from pairmill.flows.command.cli import main
from tests.worlds.tiny_families import save_family


def said(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, str]:
    assert main(["check-model", *words]) == 0
    return dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())


def test_it_tells_the_tokens_of_a_picture_and_that_decoding_is_captured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    save_family(tmp_path, "smolvlm")
    many = said(capsys, str(tmp_path), "--precision", "fp32", "--side", "64")
    one = said(capsys, f"hf:{tmp_path}", "--precision", "fp32", "--side", "64", "--processor", "{tiles: 1}")
    assert many["pictures"] == "tokens a picture: 103 of 64 x 64, 79 of 85 x 64, 55 of 192 x 64"
    assert one["pictures"] == "tokens a picture: 7 of 64 x 64, 7 of 85 x 64, 7 of 192 x 64"
    assert one["loads"].startswith("SmolVLMForConditionalGeneration, 0.00 GB of weights in fp32")
    assert one["batches"].startswith("4 of 4") and one["decoding"].startswith("captured on a GPU")
    # 2 layers of keys and values, 2 heads of 8 numbers, 4 bytes each; 7 + 40 + 128 tokens
    assert one["memory"].startswith("0.04 MB a row with 128 tokens of answer")


def test_it_says_why_decoding_is_not_captured(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    found = said(capsys, save_family(tmp_path, "paligemma"), "--precision", "fp32", "--side", "32")
    assert "step by step: on a trial, PaliGemmaForConditionalGeneration gave another token" in found["decoding"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("hf:/no/such/folder",), "no folder /no/such/folder"),
        (("http:a@https://b/v1",), "is no captioner that runs here"),
        (("/no/such", "--processor", "{tile: 1}"), "write '{tiles: 1}', with settings of tiles"),
    ],
)
def test_what_cannot_be_checked_is_refused_in_a_line(
    words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
):
    assert main(["check-model", *words]) != 0
    assert told in capsys.readouterr().err
