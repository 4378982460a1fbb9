"""The demo on photographs, against the truth that it planted, and the demo without their models."""

import re
import shutil
from pathlib import Path

import pytest

from pairmill.flows.command import pairmill_demo
from pairmill.flows.command.cli import main
from pairmill.ops.models.model_digest import model_digest
from tests.worlds.wheel import demo_by_wheel, told_by_wheel

# sha256 of the joined model's files, the same on every machine.
JOINED = "650964e024309130a1ce5d253bce4249"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_demo_shows_photographs_finds_swapped_alt_texts_and_tells_its_quality():
    told = told_by_wheel()["demo"]
    assert model_digest(f"open_clip:local-dir:{demo_by_wheel() / 'models/clip'}") == JOINED
    right, pairs = map(int, re.findall(r"first sentence right +(\d+) of (\d+)", told)[0])
    found, swapped, wrongly, honest = map(int, re.findall(r"texts found (\d+) of (\d+), with (\d+) of (\d+)", told)[0])
    at_1, at_5 = map(float, re.findall(r"R@1 (\S+), R@5 (\S+) of 44", told)[0])
    # Seen: 16 of 26, 8 with 1, .45 and .86. One picture of 44 more or less is .023.
    assert pairs >= 24 and right / pairs >= 0.57
    assert (swapped, honest) == (10, 34) and found >= 8 and wrongly <= 2
    assert at_1 >= 0.42 and at_5 >= 0.83
    report = (demo_by_wheel() / "lake" / "reports" / "demo-1.html").read_text()
    assert f"first sentence right {right} of {pairs} pairs; swapped alt texts found {found} of 10" in report


@pytest.mark.slow
def test_the_demos_recipe_curates_other_photographs_by_the_same_models(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "own").mkdir()
    for number in (1, 2):
        page = demo_by_wheel() / "world/pages/000" / f"000{number}"
        for file in (page.with_suffix(".html"), *page.parent.glob(f"{page.name}-*")):
            shutil.copy(file, tmp_path / "own")
    recipe, lake = str(demo_by_wheel() / "recipe.yaml"), str(tmp_path / "lake")
    assert main(["run", recipe, "--source", str(tmp_path / "own"), "--lake", lake]) == 0
    assert re.search(r"caption +A photo of a ", capsys.readouterr().out)


@pytest.mark.slow
def test_without_the_models_for_photographs_the_demo_draws_and_says_so_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    asked = []
    monkeypatch.setattr(pairmill_demo, "PHOTO_PACKAGES", ("no_such_package",))
    monkeypatch.setattr(pairmill_demo, "run", lambda args: asked.append(args.recipe) or 0)
    monkeypatch.setattr(pairmill_demo, "DOCUMENTS", 2)
    place = ["--to", str(tmp_path / "demo")]
    assert main(["demo", *place]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "pairmill[demo]" in line]
    assert len(lines) == 1 and "no_such_package" in lines[0]
    assert main(["demo", "--drawn", *place]) == 0 and asked == ["demo", "demo"]
    assert "pairmill[demo]" not in capsys.readouterr().out
    monkeypatch.setattr(pairmill_demo, "PHOTO_PACKAGES", ())
    assert main(["demo", *place]) == 1
    assert "holds a demo of drawn pictures; name a new folder, or run it with --drawn" in capsys.readouterr().err
