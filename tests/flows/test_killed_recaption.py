"""A recaption that is killed in any state, and then run again, ends as one that nothing disturbs."""

from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any

import pytest

from pairmill.flows.command.cli import main
from tests.flows.test_killed_states import killed
from tests.flows.test_recaption import captioned_once, make_photos, reword_one
from tests.worlds.killed_in import CAPTION_STATES, TAR_ROWS
from tests.worlds.line import rows, scored_twice
from tests.worlds.photos import add_pictures
from tests.worlds.shared import copied, made_once

pytestmark = pytest.mark.slow
COMMAND = ["recaption", "demo", "--models", "demo", "--workers", "2"]
CAPTIONS = "SELECT sha256, text, status, n_tokens FROM captions ORDER BY sha256"
COMMITTED = ("registered", "captioned")
# In CI a kill of each kind; `make test-full` has every state.
OFTEN = ("registered", "list", "manifest")
OF_CHANGED = ("sample",)


def marked(states: Iterable[str], often: Container[str]) -> list[Any]:
    return [pytest.param(state, marks=() if state in often else pytest.mark.full) for state in states]


@pytest.fixture(autouse=True)
def _small_tars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pairmill.tasks.release.export.export.TAR_ROWS", TAR_ROWS)


@pytest.fixture(scope="session")
def photos() -> Path:
    return made_once("photos", make_photos)


@pytest.fixture(scope="session")
def captioned() -> Path:
    """A lake in which all pictures have captions; nothing was handed out."""
    return captioned_once() / "lake"


def handed_out(folder: Path, of_lake: bool = True) -> dict[str, bytes]:
    """Every file of an export; its mark and its list name the lake, too."""
    names = [path for path in sorted(folder.iterdir()) if of_lake or path.suffix == ".tar"]
    return {path.name: path.read_bytes() for path in names}


@pytest.mark.parametrize("state", marked(COMMITTED, OFTEN))
def test_captions_that_a_kill_leaves_are_kept_and_none_is_made_twice(
    state: str, captioned: Path, photos: Path, tmp_path: Path
):
    lake, out, whole = tmp_path / "lake", tmp_path / "out", tmp_path / "whole"
    command = [*COMMAND, "--source", str(photos), "--lake", str(lake), "--to", str(out)]
    killed(state, *command)
    held = rows(lake, CAPTIONS)
    assert bool(held) == (state == "captioned") and len(held) < len(rows(captioned, CAPTIONS))
    assert main(command) == 0
    assert rows(lake, CAPTIONS) == rows(captioned, CAPTIONS) and scored_twice(lake) == []
    assert set(held) <= set(rows(lake, CAPTIONS)) and rows(lake, "SELECT * FROM lease") == []
    assert main([*COMMAND, "--lake", str(lake), "--to", str(whole)]) == 0
    assert handed_out(out) == handed_out(whole)


@pytest.mark.parametrize("state", marked((state for state in CAPTION_STATES if state not in COMMITTED), OFTEN))
def test_what_is_handed_out_after_a_kill_is_what_would_have_been(state: str, captioned: Path, tmp_path: Path):
    lake, out, whole = copied(captioned, tmp_path / "lake"), tmp_path / "out", tmp_path / "whole"
    command = [*COMMAND, "--lake", str(lake), "--to"]
    killed(state, *command, str(out))
    assert not (out / ".manifest.json").exists()
    assert main([*command, str(out)]) == 0 and main([*command, str(whole)]) == 0
    assert handed_out(out) == handed_out(whole) and len(handed_out(out, of_lake=False)) > 2
    told = rows(lake, "SELECT uri, files, rows, bytes FROM exports ORDER BY uri")
    assert [uri for uri, *_ in told] == [str(out), str(whole)] and told[0][1:] == told[1][1:]


@pytest.mark.parametrize("state", marked(("sample", "list", "manifest"), OF_CHANGED))
def test_files_that_are_made_anew_when_a_kill_comes_hand_out_no_old_picture(
    state: str, captioned: Path, tmp_path: Path
):
    """Another text changes one file, three new pictures make one more: a finished one is written over."""
    out, whole, more = (tmp_path / name for name in ("out", "whole", "more"))
    lake = copied(captioned, tmp_path / "lake")
    command = [*COMMAND, "--lake", str(lake), "--to"]
    assert main([*command, str(out)]) == 0
    add_pictures(more, 40, 43)
    reword_one(lake)
    killed(state, *command, str(out), "--source", str(more))
    assert not (out / ".manifest.json").exists()
    assert main([*command, str(out)]) == 0 and main([*command, str(whole)]) == 0
    assert handed_out(out) == handed_out(whole)
