"""A run over what has not changed is answered by the last one; each thing that a run reads, changed, has it run."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import OPENING_ERRORS, create_or_open
from pairmill.catalog.terms.declared import declared
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write import finished
from pairmill.catalog.write.finished import Finished, save
from pairmill.catalog.write.lease import Writer, writing
from pairmill.catalog.write.recorded_removals import record_removal
from pairmill.catalog.write.sweep import checkpoint
from pairmill.catalog.write.version_names import drop_version, name_version
from pairmill.flows.run import run_inputs, run_recipe
from pairmill.flows.run.run_start import session
from pairmill.flows.run.settings import Compute, load_recipe
from pairmill.ops.read.declared_formats import GROUP, formats
from tests.examples import slow_but
from tests.worlds.installed import declaring
from tests.worlds.shared import copied

FORBIDDEN = ("torch", "ray", "prefect", "transformers", "pandas")


@dataclass
class Inputs:
    """A source, a model and a file of code that are this test's own."""

    pages: Path
    model: Path
    code: Path
    settings: dict[str, str]

    def question(self, compute: Compute | None = None, notes: tuple[str, ...] = (), **settings: str):
        recipe = load_recipe("demo", self.settings | {key.replace("__", "."): each for key, each in settings.items()})
        return run_recipe.request_run(recipe, [str(self.pages)], compute or Compute.model_validate({}), notes)


@dataclass
class Given(Inputs):
    """Inputs, a lake in which a run over them has ended, and ``asked``, the request of that run."""

    lake: Path
    asked: run_recipe.RunRequest

    def is_answered(self, asked: run_recipe.RunRequest | None = None) -> bool:
        """Return whether the lake's record answers a request (by default for the present inputs) without a run.

        Asserts that `run --dry-run` then says that nothing is pending, and otherwise does not.
        """
        asked = asked or self.question()
        answered = run_recipe.last_result(asked, str(self.lake)) is not None
        assert self.is_known_to_dry_run(asked) == answered
        return answered

    def is_known_to_dry_run(self, asked: run_recipe.RunRequest) -> bool:
        try:
            with create_or_open(self.lake, read_only=True) as lake:
                return run_recipe.notes_if_nothing_is_pending(lake, asked.recipe, asked.inputs) is not None
        except (PairmillError, *OPENING_ERRORS):
            return False

    def write(self, change: Callable[[Lake, Writer], object]) -> None:
        with create_or_open(self.lake) as lake, writing(lake, "run-of-a-test", "test") as writer:
            change(lake, writer)


@pytest.fixture
def inputs(pages: Path, settings: dict[str, str], tmp_path: Path, monkeypatch) -> Inputs:
    code = tmp_path / "code"
    code.mkdir()
    (code / "op.py").write_text("VERSION = 1\n")
    monkeypatch.setattr(run_inputs, "CODE", (*run_inputs.CODE, str(code)))
    model = shutil.copytree(settings["models.clip"].removeprefix("open_clip:local-dir:"), tmp_path / "clip")
    own = {"models.clip": f"open_clip:local-dir:{model}"}
    return Inputs(shutil.copytree(pages, tmp_path / "pages"), model, code, settings | own)


@pytest.fixture
def given(curated: Path, inputs: Inputs, tmp_path: Path) -> Given:
    asked = inputs.question()
    made = Given(**vars(inputs), lake=copied(curated, tmp_path / "lake"), asked=asked)
    ways = (asked.digest, run_recipe.pending_digest(asked.recipe))
    found = [Finished(way, asked.inputs, "demo", 1, ("a note",)) for way in ways]
    made.write(lambda lake, writer: save(writer, *found))
    return made


def a_page(given: Inputs) -> Path:
    return min(given.pages.rglob("*.html"))


def test_what_did_not_change_is_answered_with_the_outcome_and_the_notes_that_last(given: Given):
    found = run_recipe.last_result(given.asked, str(given.lake))
    assert found is not None
    assert (str(found.outcome.dataset), found.notes) == ("demo@1", ["a note"])


def test_an_unfinished_removal_is_a_note_of_a_run_without_work_and_of_one_with_work(given: Given):
    asked = given.asked

    def change(lake: Lake, writer: Writer) -> None:
        report = {"reason": "test", "erased": {"why": "it was ended before"}}
        lake.retrying(lambda: record_removal(lake, "a removal", writer.begin("takedown"), report))
        save(writer, Finished(asked.digest, asked.inputs, "demo", 1))

    given.write(change)
    found = run_recipe.last_result(asked, str(given.lake))
    assert found and len(found.notes) == 1 and found.notes[0].startswith("1 removal is unfinished: ")
    with session(asked.recipe, [str(given.pages)], str(given.lake), Compute.model_validate({"workers": 1})) as begun:
        assert begun.notes == found.notes and not begun.lasting_notes


def test_another_cap_asks_for_no_other_measurements_and_none_or_another_rule_does(inputs: Inputs):
    caps = [inputs.question(balance__cap=cap).recipe for cap in ("20", "7", "none")]
    same, other, none = map(run_recipe.measured_digest, caps)
    rule = inputs.question(balance__cap="20", images__short_side__keep="least(width, height) >= 65").recipe
    assert same == other and len({same, none, run_recipe.measured_digest(rule)}) == 3


ASKED = {
    "a setting": {"balance__cap": "7"},
    "a rule": {"images__short_side__keep": "least(width, height) >= 65"},
    "an option": {"compute": Compute.model_validate({"workers": 3})},
    "a note on the recipe": {"notes": ("with the small models …",)},
    "a model on the hub": {"models__captioner": "hf:organisation/name"},
    "a model behind an endpoint": {"models__captioner": "http:name@https://host.example/v1"},
}


@pytest.mark.parametrize("what", ASKED)
def test_another_question_has_another_digest_or_unknown_inputs(inputs: Inputs, what: str):
    asked, again, other = inputs.question(), inputs.question(), inputs.question(**ASKED[what])
    assert asked == again and asked.inputs
    assert other.digest != asked.digest
    assert bool(other.inputs) == (" model " not in f" {what} ")


def test_the_same_question_is_answered_and_another_is_run(given: Given):
    assert given.is_answered()
    assert not given.is_answered(given.question(**ASKED["a rule"]))


@pytest.mark.parametrize("source", ["s3://bucket/prefix", "https://host.example/list.parquet", "${PAGES}", "nowhere"])
def test_a_source_without_stamps_is_run(settings: dict[str, str], source: str):
    asked = run_recipe.request_run(load_recipe("demo", settings), [source], Compute.model_validate({}), ())
    assert asked.inputs == ""
    assert run_recipe.last_result(asked, "a lake that is not looked at") is None


BESIDE = {
    "a new document": lambda given: shutil.copy(a_page(given), a_page(given).with_name("new.html")),
    "a document that went": lambda given: a_page(given).unlink(),
    "a changed document": lambda given: a_page(given).write_text("<p>Another text stands here now.</p>"),
    "a document written again": lambda given: os.utime(a_page(given)),
    "a hidden file": lambda given: (given.pages / ".new.html").touch(),
    "a link to nothing": lambda given: (given.pages / "new.html").symlink_to("nowhere"),
    "the source": lambda given: shutil.rmtree(given.pages),
    "a model's file": lambda given: (given.model / "more.json").write_text("{}"),
    "a model's bytes": lambda given: os.utime(next(given.model.glob("*.safetensors"))),
    "the model": lambda given: shutil.rmtree(given.model),
    "code": lambda given: (given.code / "op.py").write_text("VERSION = 2\n"),
}


@pytest.mark.parametrize("what", BESIDE)
def test_a_changed_input_changes_the_digest_of_the_inputs(inputs: Inputs, what: str):
    asked = inputs.question()
    assert inputs.question().inputs == asked.inputs != ""
    BESIDE[what](inputs)
    found = inputs.question()
    assert found.inputs != asked.inputs and found.digest == asked.digest


@pytest.mark.parametrize("what", ["a changed document", "the model"])
def test_a_changed_input_is_run(given: Given, what: str):
    BESIDE[what](given)
    assert not given.is_answered()


def test_another_library_changes_the_digest_of_the_inputs(inputs: Inputs, tmp_path: Path, monkeypatch):
    before = inputs.question().inputs
    (tmp_path / "site" / "numpy-99.0.dist-info").mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "site")])
    assert inputs.question().inputs not in ("", before)


def test_a_foreign_score_and_its_code_are_run(inputs: Inputs, tmp_path: Path, monkeypatch):
    package = tmp_path / "site" / "foreign_score"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    foreign = replace(declared()[0], op="foreign_score.op:Op", package="foreign-score")
    recipe, sources = load_recipe("demo", inputs.settings), [str(inputs.pages)]
    before = run_inputs.inputs_digest(recipe, sources)
    monkeypatch.setattr(run_inputs, "declared", lambda: (*declared(), foreign))
    declares = run_inputs.inputs_digest(recipe, sources)
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "op.cpython-311.pyc.140234").touch()  # as Python names one that it is writing
    assert run_inputs.inputs_digest(recipe, sources) == declares
    (package / "op.py").write_text("VERSION = 2\n")
    assert len({"", before, declares, run_inputs.inputs_digest(recipe, sources)}) == 4


def test_a_foreign_format_and_its_code_are_run(inputs: Inputs, tmp_path: Path, monkeypatch):
    (tmp_path / "sources").mkdir()
    reader = tmp_path / "sources" / "foreign_format.py"
    reader.write_text("VERSION = 1\n")
    recipe, sources = load_recipe("demo", inputs.settings), [str(inputs.pages)]
    found = [run_inputs.inputs_digest(recipe, sources)]
    with declaring(monkeypatch, tmp_path / "site", tmp_path / "sources", GROUP, formats.cache_clear) as declare:
        declare("foreign-format", "foreign_format:FORMAT")
        found.append(run_inputs.inputs_digest(recipe, sources))
        reader.write_text("VERSION = 2\n")
        found.append(run_inputs.inputs_digest(recipe, sources))
    assert len({"", *found}) == 4


def _begin(lake: Lake, writer: Writer) -> None:
    writer.begin("something")
    lake.retrying(lambda: lake.execute("INSERT INTO waves VALUES ('run', 1, 1, 1, 1, 1)"))


LAKE = {
    "a ban": lambda lake, _: lake.execute("INSERT INTO bans VALUES ('00', 'asked for', now())"),
    "a row of quarantine": lambda lake, _: lake.execute(
        "INSERT INTO quarantine BY NAME SELECT 'x' AS item, 'ingest' AS stage, 'missing' AS reason"
    ),
    "a reopened quarantine": lambda lake, _: lake.execute("DELETE FROM quarantine"),
    "scores that went": lambda lake, _: lake.execute(
        "DELETE FROM image_quality WHERE sha256 = (SELECT min(sha256) FROM image_quality)"
    ),
    "a threshold": lambda lake, _: lake.execute("INSERT INTO thresholds (rule) VALUES ('short_side')"),
    "a dropped version": lambda lake, _: drop_version(lake, "demo", 1),
    "another's commit": _begin,
}


QUICK = ("a ban", "a threshold", "a data file that went")


@pytest.mark.parametrize("what", slow_but(QUICK, LAKE))
def test_a_changed_lake_is_run(given: Given, what: str):
    given.write(LAKE[what])
    assert not given.is_answered(given.asked)


@pytest.mark.slow
def test_a_lake_whose_files_were_merged_is_answered_still(given: Given):
    given.write(lambda _, writer: checkpoint(writer))
    assert given.is_answered()


TOLD_ONLY = {
    "runs": "INSERT INTO runs (run_id, state) VALUES ('other', 'completed')",
    "run_recipes": "INSERT INTO run_recipes (run_id) VALUES ('other')",
    "exports": "INSERT INTO exports (dataset) VALUES ('demo')",
    "judgement_samples": "INSERT INTO judgement_samples (dataset) VALUES ('demo')",
    "judgements": "INSERT INTO judgements (verdict) VALUES ('match')",
}


@pytest.mark.slow
def test_names_records_and_judgements_are_no_change(given: Given):
    given.write(lambda lake, _: name_version(lake, "demo", 1, "release-1"))
    assert given.is_answered()
    for table, insert in TOLD_ONLY.items():
        given.write(lambda lake, _, insert=insert: lake.execute(insert))
        assert given.is_answered(), table


def a_file(given: Given) -> Path:
    return min((given.lake / "data" / "main" / "sentence_embedding").rglob("*.parquet"))


FILES = {
    "a data file that went": lambda given: a_file(given).unlink(),
    "a data file written again": lambda given: os.utime(a_file(given)),
    "a catalog that went": lambda given: (given.lake / "catalog.sqlite").unlink(),
    "a lake that went": lambda given: shutil.rmtree(given.lake),
}


@pytest.mark.parametrize("what", slow_but(QUICK, FILES))
def test_a_lake_whose_files_changed_is_run(given: Given, what: str):
    FILES[what](given)
    assert not given.is_answered(given.asked)


def test_a_lake_that_is_written_to_or_whose_writer_was_killed_is_run(given: Given):
    with create_or_open(given.lake) as lake, writing(lake, "run-of-a-test", "test"):
        assert not given.is_answered(given.asked)
    assert given.is_answered(given.asked)


def test_a_run_is_not_remembered_when_its_source_changed_meanwhile(given: Given):
    asked = given.question(balance__cap="7")
    shutil.copy(a_page(given), a_page(given).with_name("new.html"))
    session: Any = SimpleNamespace(writer=None, lasting_notes=())  # a writer that is asked for anything would fail
    published: Any = SimpleNamespace(name="demo", version=1)
    run_recipe.store(asked, session, published)
    assert run_recipe.last_result(asked, str(given.lake)) is None


def test_of_many_questions_the_newest_are_kept(given: Given, monkeypatch):
    monkeypatch.setattr(finished, "KEPT", 2)
    asked = [given.question(balance__cap=cap) for cap in ("5", "6", "7")]
    for each in asked:
        given.write(lambda _, writer, each=each: save(writer, Finished(each.digest, each.inputs, "demo", 1)))
    assert [run_recipe.last_result(each, str(given.lake)) is not None for each in asked] == [False, True, True]


def run(lake: Path, pages: Path, settings: dict[str, str]) -> str:
    """A run as a process of its own, which says at its end what it imported."""
    arguments = ["run", "demo", "--source", str(pages), "--lake", str(lake)]
    arguments += [each for key, value in settings.items() for each in ("--set", f"{key}={value}")]
    code = f"import sys; from pairmill.flows.command.cli import main; main({arguments!r}); print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    return done.stdout


@pytest.mark.slow
def test_a_run_is_answered_as_the_one_before_it_and_imports_no_model_library(
    curated: Path, pages: Path, settings: dict[str, str], tmp_path: Path
):
    lake = copied(curated, tmp_path / "lake")
    *told, worked = run(lake, pages, settings).splitlines()
    *again, imported = run(lake, pages, settings).splitlines()
    assert again == told
    assert "unchanged" in again[2]
    assert "pairmill.flows.curate" in worked.split()
    assert "torch" not in worked.split()  # all steps ran, none had work
    assert not {*FORBIDDEN, "pairmill.flows.curate"} & set(imported.split())
    with create_or_open(lake, read_only=True) as opened:
        assert opened.query("SELECT count(*) FROM runs WHERE state = 'completed'") == [(2,)]
