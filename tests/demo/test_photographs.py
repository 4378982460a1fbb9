"""The demo on photographs, against the truth that it planted."""

import re
from pathlib import Path

import pytest

from pairmill.flows.command.cli import main
from pairmill.ops.models.model_digest import model_digest

# sha256 of the joined model's files, the same on every machine.
JOINED = "650964e024309130a1ce5d253bce4249"


@pytest.mark.slow
def test_the_demo_on_photographs_finds_swapped_alt_texts_and_tells_its_quality(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["demo", "--photographs", "--to", str(tmp_path / "demo")]) == 0
    told = capsys.readouterr().out
    assert model_digest(f"open_clip:local-dir:{tmp_path / 'demo/models/clip'}") == JOINED
    right, pairs = map(int, re.findall(r"first sentence right +(\d+) of (\d+)", told)[0])
    found, swapped, wrongly, honest = map(int, re.findall(r"texts found (\d+) of (\d+), with (\d+) of (\d+)", told)[0])
    at_1, at_5 = map(float, re.findall(r"R@1 (\S+), R@5 (\S+) of 44", told)[0])
    # Seen: 16 of 26, 8 with 1, .45 and .86. One picture of 44 more or less is .023.
    assert pairs >= 24 and right / pairs >= 0.57
    assert (swapped, honest) == (10, 34) and found >= 8 and wrongly <= 2
    assert at_1 >= 0.42 and at_5 >= 0.83
