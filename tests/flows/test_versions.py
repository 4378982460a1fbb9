"""Naming and dropping dataset versions: a name means its version everywhere, a dropped version can never be cited."""

import csv
import io
import json
import sys
from pathlib import Path

import pytest

from pairmill.catalog.cut.cut import cut
from pairmill.catalog.cut.publication import Published, publish
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.terms.ids import text_id
from pairmill.catalog.write import lease
from pairmill.flows.command.cli import main
from tests.worlds.commands import Tell
from tests.worlds.line import rows
from tests.worlds.published import plan_of, published
from tests.worlds.shared import copied, made_once

N = 9
VERSIONED = ("pairs", "decisions", "funnel", "dataset_captioners")


def published_again(lake: Path, cap: int) -> Published:
    """Publish `small` with another cap, as a run does that has nothing to score."""
    plan, scorers = plan_of(cap, (), captions=True, tags=True)
    with create_or_open(lake) as opened, lease.writing(opened, "run-2", "test") as writer:
        cut(opened, plan)
        return publish(opened, plan, "run-2", 0.9, lambda: writer.begin("publish", scorers))


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A lake with two versions of `small`."""

    def make(place: Path) -> None:
        published(place, pictures=N, cap=N, image_rules=())
        assert published_again(place, 2).version == 2

    return copied(made_once("two-versions", make), tmp_path / "lake")


class Terminal(io.StringIO):
    """Standard input that a person types."""

    def isatty(self) -> bool:
        return True


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 1
    told = capsys.readouterr().err
    assert told.startswith("pairmill: ") and told.count("\n") == 1
    return told


def versions(lake: Path) -> list[tuple]:
    return rows(lake, "SELECT version, n_pairs FROM datasets ORDER BY version")


@pytest.mark.slow
def test_a_name_means_its_version_wherever_a_number_does(lake: Path, tell: Tell, tmp_path: Path):
    at = ("--lake", str(lake))
    assert tell("tag", "small@1", "release-1", *at) == "small@1 has the names release-1\n"
    tell("tag", "small@1", "release-1", *at)
    tell("tag", "small@release-1", "stable", *at)
    tell("tag", "small", "newest.of-today", *at)
    listed = csv.DictReader(io.StringIO(tell("datasets", "--format", "csv", *at)))
    assert {row["dataset"]: row["tags"] for row in listed} == {
        "small@1": "release-1 stable", "small@2": "newest.of-today",
    }  # fmt: skip
    tell("export", "small@release-1", "--to", str(tmp_path / "out"), *at)
    assert json.loads((tmp_path / "out" / ".manifest.json").read_text())["version"] == 1
    assert "in small@1" in tell("why", text_id("image", "1"), "--dataset", "small@stable", *at)


@pytest.mark.slow
def test_a_name_of_another_version_or_of_another_form_is_refused_with_the_remedy(lake: Path, tell: Tell, capsys):
    at = ("--lake", str(lake))
    tell("tag", "small@1", "release-1", *at)
    told = refused(capsys, "tag", "small@2", "release-1", *at)
    assert "'release-1' is the name of small@1" in told and "pairmill tag small@1 release-1 --remove" in told
    for bad in ("3", "a b", "-x", "", "é", "x" * 64):
        with_end_of_options = ("tag", *at, "--", "small@1", bad)
        assert "cannot name a version" in refused(capsys, *with_end_of_options)
    assert "has no name 'stable'; it has release-1" in refused(capsys, "tag", "small@1", "stable", "--remove", *at)
    assert "a name that `pairmill tag` gave (there are release-1)" in refused(
        capsys, "export", "small@release-2", "--to", "out", *at
    )
    assert tell("tag", "small@1", "release-1", "--remove", *at) == "small@1 has no name\n"
    tell("tag", "small@2", "release-1", *at)


@pytest.mark.slow
def test_a_version_is_named_while_a_run_holds_the_lease(lake: Path, tell: Tell):
    with create_or_open(lake) as opened, lease.writing(opened, "run-3", "curate"):
        tell("tag", "small@1", "release-1", "--lake", str(lake))
        opened.execute("INSERT INTO bans VALUES ('00', 'asked for', now())")
    assert "small@1 has the names again, release-1" in tell("tag", "small@1", "again", "--lake", str(lake))


@pytest.mark.slow
def test_a_dropped_version_has_no_row_left_and_the_others_have_theirs(lake: Path, tell: Tell, tmp_path: Path, capsys):
    at = ("--lake", str(lake))
    tell("export", "small@1", "--to", str(tmp_path / "out"), *at)
    before = {
        table: rows(lake, f"SELECT count(*) FROM {table} WHERE version = 2") for table in (*VERSIONED, "datasets")
    }
    scores = rows(lake, "SELECT count(*) FROM image_quality"), rows(lake, "SELECT count(*) FROM captions")
    told = tell("drop", "small@1", "--yes", *at)
    assert f"dropped small@1: {N} pairs, {N} decisions and its funnel" in told
    assert f"stays: export {tmp_path / 'out'} (webdataset, {N} pairs)" in told
    for table in (*VERSIONED, "datasets"):
        assert rows(lake, f"SELECT count(*) FROM {table} WHERE version = 1") == [(0,)], table
        assert rows(lake, f"SELECT count(*) FROM {table} WHERE version = 2") == before[table]
    assert scores == (rows(lake, "SELECT count(*) FROM image_quality"), rows(lake, "SELECT count(*) FROM captions"))
    told = refused(capsys, "export", "small@1", "--to", str(tmp_path / "again"), *at)
    assert "version 1 of dataset 'small' was dropped on 20" in told and "its newest is small@2" in told
    assert (tmp_path / "out" / "small-v1-000000.tar").exists()


@pytest.mark.slow
@pytest.mark.parametrize("of_all", [False, True], ids=["the newest", "every one"])
def test_the_number_of_a_dropped_version_is_not_given_again(lake: Path, tell: Tell, capsys, of_all: bool):
    for version in (2, 1) if of_all else (2,):
        tell("drop", f"small@{version}", "--yes", "--lake", str(lake))
    told = refused(capsys, "export", "small@2", "--to", "out", "--lake", str(lake))
    assert "version 2 of dataset 'small' was dropped" in told
    assert ("none is left" if of_all else "its newest is small@1") in told
    again = published_again(lake, 2)
    assert (again.version, again.is_new) == (3, True)
    assert not published_again(lake, 2).is_new
    assert [version for version, _ in versions(lake)] == ([3] if of_all else [1, 3])


@pytest.mark.slow
def test_only_the_very_version_is_dropped_and_only_when_it_is_confirmed(
    lake: Path, tell: Tell, capsys, monkeypatch: pytest.MonkeyPatch
):
    at = ("--lake", str(lake))
    tell("tag", "small@1", "release-1", *at)
    assert "'small' is small@2 now" in refused(capsys, "drop", "small", "--yes", *at)
    assert "Name the very version: pairmill drop small@1" in refused(capsys, "drop", "small@release-1", "--yes", *at)
    assert "first run: pairmill tag small@1 release-1 --remove" in refused(capsys, "drop", "small@1", "--yes", *at)
    assert "has no version 3; its newest is small@2" in refused(capsys, "drop", "small@3", "--yes", *at)
    for answer in ("y\n", "small\n", "small@1\n", ""):
        monkeypatch.setattr(sys, "stdin", Terminal(answer))
        assert "nothing was removed" in refused(capsys, "drop", "small@2", *at)
    monkeypatch.setattr(sys, "stdin", io.StringIO("small@2\n"))  # a file that nobody typed
    assert "nothing was removed" in refused(capsys, "drop", "small@2", *at)
    assert [version for version, _ in versions(lake)] == [1, 2]
    monkeypatch.setattr(sys, "stdin", Terminal("small@2\n"))
    assert "dropped small@2" in tell("drop", "small@2", *at)
    assert [version for version, _ in versions(lake)] == [1]


@pytest.mark.slow
def test_recut_publishes_by_other_rules_and_says_what_only_a_run_can_do(curated_copy: Path, tell: Tell, capsys):
    place = ("--lake", str(curated_copy))
    said = [tell("recut", "demo", "--set", "balance.cap=2", *place).split() for _ in range(2)]
    assert said[0][0] == said[1][0] == "demo@2" and "(published);" in said[0] and "(unchanged:" in said[1]
    assert (
        tell("sql", "SELECT count(*) FROM pairs WHERE version = 2", "--format", "csv", *place).split()[1] == said[0][1]
    )
    assert main(["recut", "demo@1", "--set", "duplicates.phash=8", *place]) == 1
    assert "change it in a run: pairmill run demo --set duplicates.phash=" in capsys.readouterr().err
    tell("recut", "demo", "--name", "other", "--set", "balance.cap=2", *place)
    assert main(["recut", "other", "--set", "images.matched.keep=caption_itm_score > 0.1", *place]) == 1
    assert "A run makes them: pairmill run demo --set name=other --set …" in capsys.readouterr().err
