"""`pairmill start FOLDER`: proposals by what a folder holds, a sample with its forecast, which `run` prints too."""

import json
from pathlib import Path

import pytest

from pairmill.catalog.queries.captioned import FirstTexts
from pairmill.flows.command import pairmill_run
from pairmill.flows.command.cli import main
from pairmill.flows.preflight.first_look import FirstLook, propose_recipe
from pairmill.flows.run.settings import load_recipe
from tests.worlds.commands import Tell
from tests.worlds.photos import add_pictures

GERMAN = ("Der alte Leuchtturm steht seit hundert Jahren auf der Insel.", "Am Abend ziehen die Boote in den Hafen ein.")
HOLDS = {
    "pictures": (FirstLook({"image_folder": 90}, FirstTexts(32, 0, ())), "captions", {}),
    "captions": (FirstLook({"image_folder": 90}, FirstTexts(32, 20, GERMAN)), "captions", {"captions.own": "fill"}),
    "pages": (FirstLook({"html_folder": 9, "image_folder": 90}, FirstTexts(32, 32, ())), "folder", {}),
    "german": (FirstLook({"html_folder": 9}, FirstTexts(32, 0, GERMAN)), "folder", {"ingest.language": "de"}),
}


@pytest.mark.parametrize("what", HOLDS)
def test_the_proposed_recipe_follows_what_a_folder_holds_and_is_valid(what: str):
    seen, recipe, settings = HOLDS[what]
    found = propose_recipe(seen)
    assert (found.value, found.settings) == (recipe, settings)
    load_recipe(found.value, found.settings)


@pytest.mark.slow
def test_a_start_forecasts_prints_the_run_and_goes_on_where_it_ended(
    tmp_path: Path, tell: Tell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    add_pictures(tmp_path / "photos", 0, 6)
    for n in range(4):
        (tmp_path / f"photos/{n:04}.txt").write_text(f"The {n} that stands on the quiet hill.")
    (tmp_path / "first").mkdir()
    answers = {"source": "photos", "models": "demo"}  # of a call that was closed behind its second question
    (tmp_path / "first/start.json").write_text(json.dumps(answers))
    said = tell("start", "photos", "--to", "first", "--lake", "whole")
    assert "6 of image_folder; 4 of the first 6 pictures have a text of their own" in said
    run = "pairmill run captions --source photos --lake whole --models demo --set captions.own=fill"
    assert run in said and "pairmill browse --lake first/sample" in said and not (tmp_path / "whole").exists()
    assert json.loads((tmp_path / "first/start.json").read_text()) == answers | {"recipe": "captions"}
    before = json.loads((tmp_path / "first/measured.json").read_text())
    again = tell("start", "photos", "--to", "first", "--lake", "whole")
    after = json.loads((tmp_path / "first/measured.json").read_text())
    assert after["items"] == before["items"], "the second call did work of the first again"
    assert all(after["seconds"][step] >= seconds for step, seconds in before["seconds"].items())
    assert [line.split()[1] for line in (said + again).splitlines() if line.startswith("  pairs ")] == ["6", "6"]
    monkeypatch.setattr(pairmill_run, "LONG_UNITS", 5)
    monkeypatch.setattr(pairmill_run, "LONG_HOURS", 0.0)
    ran = tell("run", "captions", "--source", "photos", "--lake", "whole", "--models", "demo")
    assert "6 … 6 pairs, " in ran and " GB, no price is set: by 6 pictures of 6 units. `pairmill preflight`" in ran
    assert main(["start", "first", "--to", "first"]) == 1
    assert "--to 'first' holds the start of 'photos'; name a new folder." in capsys.readouterr().err
    (tmp_path / "first/measured.json").write_text('{"items": []}')
    assert main(["start", "photos", "--to", "first"]) == 1
    assert "measured.json' is damaged; name a new folder, or remove this one." in capsys.readouterr().err
    (tmp_path / "other").mkdir()
    (tmp_path / "other/start.json").write_text("[1]")
    assert main(["start", "photos", "--to", "other"]) == 1
    assert "--to 'other' holds other files" in capsys.readouterr().err
