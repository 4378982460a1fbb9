"""A run of which only settings of the cut differ from the last one skips the steps that do not read them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import pairmill as pm
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.recipe.plan import compile_plan
from pairmill.catalog.write import measured
from pairmill.catalog.write.lease import Writer, writing
from pairmill.catalog.write.measured import Measurement, recall_measured, remember_measured
from pairmill.flows import curate
from pairmill.flows.run import nothing_to_do
from pairmill.flows.run.run_inputs import inputs_digest
from pairmill.flows.run.survey import survey
from pairmill.tasks.run.place import identity
from tests.worlds.shared import copied

LAST = "SELECT version, content_digest, n_pairs, recipe FROM datasets WHERE name = 'demo' ORDER BY version DESC LIMIT 1"
FUNNEL = "SELECT kind, rule, n_in, n_dropped FROM funnel WHERE dataset = 'demo' ORDER BY version, kind, position"


def recipe_of(settings: dict[str, str], **more: Any) -> pm.Recipe:
    changes = {key: yaml.safe_load(value) for key, value in settings.items()}
    return pm.recipe("demo").with_(changes | {key.replace("__", "."): value for key, value in more.items()})


def test_a_run_with_another_cap_only_cuts_and_gives_what_all_steps_give(
    curated_copy: Path, pages: Path, settings: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pm.run(recipe_of(settings, balance__cap=2), pages, curated_copy)
    copied(curated_copy, tmp_path / "whole")
    more = recipe_of(settings, balance__cap=30, association__max_uses=2)  # texts of more pictures are generated
    with monkeypatch.context() as patch:
        patch.setattr(curate, "measure_steps", lambda *_: pytest.fail("a step that reads no setting of the cut ran"))
        cut = pm.run(more, pages, curated_copy)
        again = pm.run(recipe_of(settings, balance__cap=29, association__max_uses=2), pages, curated_copy)
    with monkeypatch.context() as patch:
        patch.setattr(nothing_to_do, "take_over_measured", lambda *_: False)
        patch.setattr(nothing_to_do, "was_measured", lambda *_: False)
        whole = pm.run(more, pages, tmp_path / "whole")
    assert cut.is_new and whole.is_new and cut.notes == whole.notes
    with create_or_open(curated_copy, read_only=True) as one, create_or_open(tmp_path / "whole") as other:
        newest = f"{LAST.replace('LIMIT 1', '')} OFFSET 1" if again.is_new else LAST
        assert one.query(newest)[0] == other.query(LAST)[0]
        assert one.query(FUNNEL)[: len(other.query(FUNNEL))] == other.query(FUNNEL)
        assert one.query("SELECT count(*) FROM captions") == other.query("SELECT count(*) FROM captions")


def test_status_counts_the_work_of_another_cap_without_the_measuring_steps(
    curated_copy: Path, pages: Path, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    pm.run(recipe_of(settings, balance__cap=2), pages, curated_copy)
    asked, sources = recipe_of(settings, balance__cap=30), [str(pages)]
    question, inputs = nothing_to_do.asked_of_measuring(asked), inputs_digest(asked, sources)
    with create_or_open(curated_copy) as lake, writing(lake, "run-of-a-test", "test") as writer:
        found = recall_measured(lake, question, inputs)
        assert found is not None
        lake.execute("DELETE FROM captions")  # as if the run's cap had left all pictures without one
        remember(writer, found)
    plan, _ = identity.with_scorers(compile_plan(asked))
    with create_or_open(curated_copy, read_only=True) as lake:
        whole = survey(lake, plan, sources)
        monkeypatch.setattr(curate, "measure_steps", lambda *_: pytest.fail("a measuring step was counted"))
        cut = survey(lake, plan, sources, inputs)
    assert [each for each in cut.found if each.rows] == [each for each in whole.found if each.rows] != []


SAME = {"balance__cap": 7, "balance__target": 50, "balance__fewer": {3: 1}, "association__max_uses": 5}
OTHER = {
    "balance__cap": "none", "balance__clusters": 7, "association__top_k": 2, "association__at_least": 2, "seed": 5,
    "images__short_side__keep": "least(width, height) >= 65", "captioners__main__prompt": "What is it?",
}  # fmt: skip


def test_only_settings_that_the_measuring_steps_do_not_read_leave_their_question_the_same(settings: dict[str, str]):
    def asked(**more: Any) -> str:
        return nothing_to_do.asked_of_measuring(recipe_of(settings, **more))

    assert {asked(**{name: value}) for name, value in SAME.items()} == {asked()}
    others = [asked(**{name: value}) for name, value in OTHER.items()]
    assert len({asked(), *others}) == 1 + len(OTHER)


CHANGED: dict[str, Callable[[Lake, Writer], object]] = {
    "nothing": lambda lake, _: None,
    "a ban": lambda lake, _: lake.execute("INSERT INTO bans VALUES ('00', 'asked for', now())"),
    "scores that went": lambda lake, _: lake.execute(
        "DELETE FROM image_quality WHERE sha256 = (SELECT min(sha256) FROM image_quality)"
    ),
    "a scorer that went": lambda lake, _: lake.execute(
        "DELETE FROM scorers WHERE digest = (SELECT min(digest) FROM scorers)"
    ),
}


def remember(writer: Writer, found: Measurement) -> None:
    for table in writer.lake.tables:  # in a copy, files that no run has read have no stamp
        writer.lake.check_files(table)
    remember_measured(writer, found)


@pytest.mark.parametrize("what", CHANGED)
def test_what_was_measured_holds_until_the_lake_changes(curated_copy: Path, what: str):
    with create_or_open(curated_copy) as lake, writing(lake, "run-of-a-test", "test") as writer:
        scorers = dict(lake.query("SELECT name, digest FROM scorers"))
        found = Measurement("asked", "inputs", scorers, ("a note",))
        remember(writer, found)
        CHANGED[what](lake, writer)
        assert recall_measured(lake, "asked", "inputs") == (found if what == "nothing" else None)
        assert recall_measured(lake, "asked", "others") is recall_measured(lake, "other", "inputs") is None


def test_a_scorer_that_no_commit_registered_has_the_steps_run(curated_copy: Path):
    with create_or_open(curated_copy) as lake, writing(lake, "run-of-a-test", "test") as writer:
        remember(writer, Measurement("asked", "inputs", {"clusters": "of no commit"}))
        assert recall_measured(lake, "asked", "inputs") is None


def test_of_many_measurings_the_newest_are_kept(curated_copy: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(measured, "KEPT", 2)
    with create_or_open(curated_copy) as lake, writing(lake, "run-of-a-test", "test") as writer:
        for name in "abc":
            remember(writer, Measurement(name, "inputs", dict(lake.query("SELECT name, digest FROM scorers LIMIT 1"))))
        assert [recall_measured(lake, name, "inputs") is not None for name in "abc"] == [False, True, True]
