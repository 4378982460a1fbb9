"""Acts on pictures: the cut drops, keeps and tags by them, whatever shows a picture knows them, an undo ends them."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pairmill.catalog.cut.cut import cut
from pairmill.catalog.cut.edits import with_kept
from pairmill.catalog.cut.publication import Published, publish
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries.compare.version_diff import differences
from pairmill.catalog.queries.datasets import find, funnel
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.upkeep.taken_items import Subject
from pairmill.catalog.write import act_queue, acts, lease
from pairmill.flows.api.picture_acts import act_on, fates_named, undo_act
from pairmill.flows.command.cli import main
from pairmill.tasks.upkeep.removal import take_down
from tests.worlds.published import plan_of, published

RULES = ({"name": "wide", "keep": "width >= 60"},)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """A lake whose rule `wide` drops 3 of 12 pictures of dataset `small`, and whose cap 3 of each of two clusters."""
    published(tmp_path / "lake", cap=3, image_rules=RULES, caption="", tags=())
    with create_or_open(tmp_path / "lake") as opened:
        yield opened


def publish_again(lake: Lake) -> Published:
    with lease.writing(lake, "run-again", "test") as writer:
        plan = with_kept(lake, plan_of(3, RULES, False, False)[0])
        cut(lake, plan)
        return publish(lake, plan, "run-again", 0.9, lambda: writer.begin("publish"))


def fates(lake: Lake, version: int) -> dict[str, str]:
    sql = "SELECT sha256, dropped_by FROM decisions JOIN images ON image_id = item_id WHERE version = ?"
    return dict(lake.query(sql, (version,)))


def of_fate(lake: Lake, fate: str) -> list[str]:
    return sorted(sha for sha, by in fates(lake, 1).items() if by == fate)


def act(lake: Lake, what: str, *shas: str, word: str = "") -> str:
    return act_on(lake, "small", what, dict.fromkeys(shas, "kept"), word).act_id


@pytest.mark.slow
def test_the_next_version_lacks_what_was_left_out_and_has_what_was_kept_until_undone(lake: Lake):
    before, kept = find(lake, "small@1"), of_fate(lake, "")
    narrow, capped = of_fate(lake, "wide")[0], of_fate(lake, "balance")[0]
    assert publish_again(lake).is_new is False
    act(lake, "leave_out", *kept[:2])
    act(lake, "keep", narrow, capped)
    act(lake, "tag", kept[2], word="fox")
    assert publish_again(lake).version == 2
    now = fates(lake, 2)
    assert [now[sha] for sha in (*kept[:2], narrow, capped)] == ["left_out", "left_out", "", ""]
    # Others of the cluster take the places of those that were left out; the rest is as it was.
    assert {was for sha, was in fates(lake, 1).items() if now[sha] == "" != was} <= {"wide", "balance"}
    step = next(step for step in funnel(lake, find(lake, "small@2")) if step.rule == "left_out")
    assert step.n_dropped == 2
    assert lake.query("SELECT tags FROM pairs WHERE version = 2 AND sha256 = ?", (kept[2],)) == [(["fox"],)]
    found = {(each.kind, each.cause, each.why, each.n) for each in differences(lake, before, find(lake, "small@2"), 0)}
    assert ("lost", "left_out", "act", 2) in found
    # The newer verdict counts, and a rule still drops what nobody keeps.
    act(lake, "keep", kept[0])
    act(lake, "untag", kept[2], word="fox")
    publish_again(lake)
    assert fates(lake, 3)[kept[0]] == "" and fates(lake, 3)[of_fate(lake, "wide")[1]] == "wide"
    for each in reversed(acts.acts_of(lake, "small")):
        assert undo_act(lake, "small", "")[0].act_id == each.act_id
    assert publish_again(lake).content_digest == before.content_digest


@pytest.mark.slow
def test_the_command_names_pictures_and_why_tells_who_decided(
    lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    def told(*arguments: str) -> str:
        capsys.readouterr()
        assert main([*arguments, "--lake", lake.uri]) == 0
        return " ".join(capsys.readouterr().out.split())

    kept, file = of_fate(lake, ""), tmp_path / "some.csv"
    file.write_text("sha256\n" + "\n".join(kept[1:3]))
    assert "would leave out: 3 pictures, 0 of them" in told(
        "edit", "small", "--leave-out", "--where", "dropped_by = 'wide'", "--dry-run"
    )
    assert not acts.acts_of(lake, "small")
    assert "leave out: 1 picture, 1 of them in pairs of small@1" in told(
        "edit", "small", "--leave-out", "--picture", kept[0]
    )
    assert "tag 'a fox': 2 pictures" in told("edit", "small", "--tag", "a fox", "--list", str(file))
    assert "leave out: 1 picture" in told("edit", "small") and "tag 'a fox': 2 pictures" in told("edit", "small")
    assert "by hand leave out" in told("why", kept[0]) and "not published yet" in told("why", kept[0])
    publish_again(lake)
    shown = told("why", kept[0])
    assert "dropped by left_out" in shown and "before: kept" in shown and "not published yet" not in shown
    assert "undone: " in told("edit", "small", "--undo")


@pytest.mark.parametrize(
    ("what", "word", "named", "told"),
    [
        ("leave_out", "", {"where": "width > 9999"}, "no picture of small@1 is named so"),
        ("leave_out", "", {"where": "widht > 9"}, "width"),
        ("leave_out", "", {}, "name the pictures in one way"),
        ("leave_out", "", {"file": "nowhere.csv"}, "is no file of pictures; name a .parquet, .csv"),
        ("tag", "", {"where": "true"}, "a tag is a word"),
        ("tag", "\ud800", {"where": "true"}, "is no UTF-8"),
        ("drop", "", {"where": "true"}, "'drop' is no act; there are leave_out, keep"),
    ],
)
def test_an_act_that_is_not_valid_is_one_line_and_stores_nothing(
    lake: Lake, what: str, word: str, named: dict[str, str], told: str
):
    with pytest.raises(PairmillError, match=told) as refused:
        found = fates_named(lake, "small", None, named.get("file"), named.get("where"))
        act_on(lake, "small", what, found, word)
    assert "\n" not in str(refused.value) and not acts.acts_of(lake, "small")


@pytest.mark.slow
def test_an_act_waits_for_the_holder_of_the_lease_and_is_stored_by_its_next_commit(lake: Lake):
    kept = of_fate(lake, "")
    with create_or_open(lake.uri) as other, lease.writing(other, "run-2", "test") as writer:
        first = act_on(lake, "small", "leave_out", {kept[0]: "kept"})
        undone = act_on(lake, "small", "leave_out", {kept[1]: "kept"})
        assert first.is_waiting and undo_act(lake, "small", undone.act_id)[1]
        found = acts.acts_of(lake, "small")
        assert [(each.is_waiting, each.is_undone) for each in found] == [(True, False), (True, True)]
        assert lake.query("SELECT count(*) FROM acts") == [(0,)]
        writer._looked = 0.0  # ten seconds later
        writer.commit([])
        assert lake.query("SELECT count(*) FROM acts") == [(3,)] and not act_queue.waiting_files(lake)
    assert [(each.is_waiting, each.is_undone) for each in acts.acts_of(lake, "small")] == [
        (False, False),
        (False, True),
    ]
    with pytest.raises(PairmillError, match="a newer act says the same"):
        act(lake, "leave_out", kept[0])


KILLED = """
import os, signal, sys
from pairmill.catalog.write import act_queue, lease
from pairmill.flows.api import picture_acts
from pairmill.catalog.lake.opening import create_or_open
def kill(*_): os.kill(os.getpid(), signal.SIGKILL)
where, place, sha = sys.argv[1:]
if where == "queued": picture_acts._still_waits = kill
else: act_queue.remove_file = kill
with create_or_open(place) as lake: picture_acts.act_on(lake, "small", "leave_out", {sha: "kept"})
"""


@pytest.mark.slow
@pytest.mark.parametrize("where", ["queued", "committed"])
def test_a_kill_between_click_and_commit_loses_nothing_and_stores_nothing_twice(lake: Lake, where: str):
    sha = of_fate(lake, "")[0]
    done = subprocess.run([sys.executable, "-c", KILLED, where, lake.uri, sha], env=os.environ, check=False)
    assert done.returncode == -signal.SIGKILL and len(act_queue.waiting_files(lake)) == 1
    assert lake.query("SELECT count(*) FROM acts") == [(int(where == "committed"),)]
    publish_again(lake)
    assert lake.query("SELECT count(*) FROM acts") == [(1,)] and not act_queue.waiting_files(lake)
    assert fates(lake, 2)[sha] == "left_out"


def test_a_folder_that_is_not_writable_and_a_damaged_file_are_told_in_a_line(
    lake: Lake, capsys: pytest.CaptureFixture[str]
):
    sha, folder = of_fate(lake, "")[0], Path(lake.data_path).parent / act_queue.FOLDER
    folder.write_bytes(b"")
    with pytest.raises(PairmillError, match=f"nothing was stored: {folder} is not writable") as refused:
        act(lake, "leave_out", sha)
    assert "\n" not in str(refused.value)
    folder.unlink()
    folder.mkdir()
    (folder / "0-a.parquet").write_bytes(b"PAR1 cut off")
    act(lake, "leave_out", sha)
    assert lake.query("SELECT count(*) FROM acts") == [(1,)]
    assert main(["edit", "small", "--lake", lake.uri]) == 0
    assert "0-a.parquet cannot be read" in capsys.readouterr().out


@pytest.mark.slow
def test_a_takedown_removes_the_acts_on_its_pictures_and_those_that_wait(lake: Lake, tmp_path: Path):
    first, second, *_ = of_fate(lake, "")
    act(lake, "tag", first, second, word="fox")
    with create_or_open(lake.uri) as other, lease.writing(other, "run-2", "test"):
        act(lake, "leave_out", first, second)
        waiting = [(path, Path(path).read_bytes()) for path in act_queue.waiting_files(lake)]
    take_down(lake, Subject(pictures=(first,)), "test", tmp_path / "reports")
    assert lake.query("SELECT DISTINCT sha256 FROM acts") == [(second,)]
    for path, data in waiting:  # as if it had been queued while the takedown went on
        Path(path).write_bytes(data)
    publish_again(lake)
    assert lake.query("SELECT DISTINCT sha256 FROM acts") == [(second,)]
