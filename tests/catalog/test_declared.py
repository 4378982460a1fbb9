"""Scores are declared once: what follows from a declaration, and what happens when packages come, clash and go."""

import importlib
import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from pairmill.catalog.cut import facts
from pairmill.catalog.cut.cut import cut
from pairmill.catalog.cut.facts_tables import score_tables, tables_read
from pairmill.catalog.lake import schema
from pairmill.catalog.lake.arrow import arrow_schema
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.lake.score_tables import undeclared
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.worklist import pending_images
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.figures.report import plan_of
from pairmill.catalog.recipe.plan import compile_plan
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms.declared import declared, validate_scores
from pairmill.catalog.terms.error import BadPredicate, BadRecipe, PairmillError
from pairmill.catalog.terms.score import Column, Score, Stage
from pairmill.catalog.terms.scores import OWN
from tests.worlds.filled_lake import kept, lake_of
from tests.worlds.random_lake import SCORERS, fill, plan, world
from tests.worlds.shared import opened_new

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Put a package with one declaration where importlib finds it; ``install()`` without a name removes all."""
    place = tmp_path / "site"
    place.mkdir()
    monkeypatch.syspath_prepend(str(place))

    def put(package: str, declaration: str) -> None:
        information = place / f"{package}-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (information / "entry_points.txt").write_text(f"[pairmill.scorers]\nscore = {package}_scores:SCORE\n")
        (place / f"{package}_scores.py").write_text(
            f"from pairmill.catalog.terms.score import Column, Score, Stage\nSCORE = {declaration}\n"
        )
        forget()

    yield put
    forget()


def forget() -> None:
    for name in [name for name in sys.modules if name.endswith("_scores") and "." not in name]:
        del sys.modules[name]
    importlib.invalidate_caches()
    declared.cache_clear()
    arrow_schema.cache_clear()


VIVID = 'Score("vivid", "image", (Column("vividness", "DOUBLE", "0 to 1"),), reads=("pixels",), op="a:B")'


def recipe(**rules: str) -> Recipe:
    images = [{"name": name, "keep": keep} for name, keep in rules.items()]
    return Recipe.model_validate({"name": "r", "models": {"clip": "open_clip:A/b"}, "images": images})


@pytest.mark.parametrize(
    "score", [score for score in OWN if score.table in schema.released()], ids=lambda score: score.table
)
def test_a_declaration_has_the_columns_of_the_table_that_the_migrations_made(score: Score):
    assert score.table_columns == schema.released()[score.table]


def test_every_status_is_a_column_of_rules():
    statuses = [column for score in OWN for column in score.columns if column.name.endswith("status")]
    assert {column.rule_name for column in statuses} == {"caption_status", "synthetic_status"}


EARLY = [score for score in OWN if score.rule_columns and score.stage < Stage.CAPTION]


@pytest.mark.slow
def test_a_new_row_of_any_declared_score_makes_the_facts_anew(tmp_path: Path):
    with lake_of(tmp_path) as lake:
        facts.attach(lake, plan())
        for score in EARLY:
            before = kept(tmp_path)
            key = "p01" if score.of == "image" else "s01"
            lake.insert(score.table, pa.table({score.key: [key], "scorer": ["other"], "commit": [2]}))
            facts.attach(lake, plan())
            assert len(kept(tmp_path)) == 1 and not kept(tmp_path).keys() & before.keys(), score.table


def test_facts_hold_every_column_that_an_early_rule_may_read(tmp_path: Path):
    """What they join and what makes them anew come from one list: a score in the one and not the other reads stale."""
    held = {name for kind in score_tables(plan()) for table in kind for name in table.columns}
    early = [score for score in plan().scores if score.stage < Stage.CAPTION]
    assert held == {name for score in early for name in score.rule_columns}
    with opened_new(tmp_path / "lake") as lake:
        read = set(tables_read(lake))
        assert {score.table for score in early if score.rule_columns} & lake.tables <= read


@pytest.mark.slow
def test_a_score_of_another_package_has_its_table_and_its_columns_in_rules_and_facts(tmp_path: Path, install: Install):
    opened_new(tmp_path / "lake").close()
    install("colours", VIVID)
    with create_or_open(tmp_path / "lake") as lake:
        assert arrow_schema("vivid").names == ["sha256", "shard", "scorer", "commit", "vividness"]
        fill(lake, *world(7))
        asked = compile_plan(plan().recipe.model_copy(update={"images": recipe(v="vividness > 0.5").images}),
                             {**SCORERS, "vivid": "v"})  # fmt: skip
        cut(lake, asked)
        before = fallen(lake)
        keys = lake.query("SELECT DISTINCT sha256 FROM images")
        rows = {"sha256": [key for (key,) in keys], "scorer": ["v"] * len(keys), "vividness": [0.9] * len(keys)}
        lake.insert("vivid", pa.table({**rows, "commit": [3] * len(keys)}))
        cut(lake, asked)
        assert before > 0 and fallen(lake) == 0


def fallen(lake: Lake) -> int:
    return lake.query("SELECT count(*) FROM cut_images WHERE dropped_by = 'v'")[0][0]


def test_a_reader_of_a_lake_without_the_table_cuts_as_if_nothing_were_scored(tmp_path: Path, install: Install):
    lake_of(tmp_path).close()
    install("colours", VIVID)
    asked = compile_plan(plan().recipe.model_copy(update={"images": recipe(v="vividness > 0.5").images}), SCORERS)
    with create_or_open(tmp_path / "lake", read_only=True) as lake:
        cut(lake, asked)
        assert fallen(lake) == lake.query("SELECT count(*) FROM cut_images WHERE dropped_by <> 'readable'")[0][0] > 0


@pytest.mark.slow
def test_recipes_with_and_without_a_score_of_a_package_keep_each_others_facts(tmp_path: Path, install: Install):
    lake_of(tmp_path).close()
    install("colours", VIVID)
    asked = compile_plan(plan().recipe.model_copy(update={"images": recipe(v="vividness > 0.5").images}), SCORERS)
    with create_or_open(tmp_path / "lake") as lake:
        cut(lake, plan())
        mine = kept(tmp_path)
        cut(lake, asked)
        both = kept(tmp_path)
        cut(lake, plan())
        assert len(both) == 2 and mine.items() <= both.items() and kept(tmp_path) == both


def test_a_score_that_no_rule_reads_and_no_recipe_names_is_not_asked_for(install: Install):
    install("colours", VIVID)
    assert "vivid" not in {score.name for score in compile_plan(recipe(), {}).scores}
    named = recipe().model_copy(update={"scores": {"vivid": {}}})
    for asks in (named, recipe(v="vividness > 0.5")):
        assert "vivid" in {score.name for score in compile_plan(asks, {}).scores}


def test_a_reader_of_a_lake_without_the_table_sees_an_empty_one(tmp_path: Path, install: Install):
    opened_new(tmp_path / "lake").close()
    install("colours", VIVID)
    with create_or_open(tmp_path / "lake", read_only=True) as lake:
        assert lake.query("SELECT count(vividness) FROM vivid") == [(0,)]
        assert [len(items) for items in _pending(lake)] == [0]
    with create_or_open(tmp_path / "lake", read_only=True) as lake:  # and left nothing behind
        tables = lake.query("SELECT 1 FROM duckdb_tables() WHERE database_name = 'lake' AND table_name = 'vivid'")
        assert tables == []


def _pending(lake: Lake) -> Iterator[list[WorkItem]]:
    asked = compile_plan(recipe(v="vividness > 0.5"), {"vivid": "v"})
    return pending_images(lake, asked, ("vivid",), Stage.PIXELS)


def test_a_score_whose_package_is_gone_is_told_in_rules_and_still_explains_what_was_published(
    tmp_path: Path, install: Install
):
    install("colours", VIVID)
    create_or_open(tmp_path / "lake").close()
    for file in (tmp_path / "site").rglob("entry_points.txt"):
        file.unlink()
    forget()
    with create_or_open(tmp_path / "lake") as lake:
        assert [score.rule_columns for score in undeclared(lake)] == [{"vividness": "DOUBLE"}]
        with pytest.raises(BadPredicate, match="no scorer computes 'vividness'"):
            compile_plan(recipe(v="vividness > 0.5"), {})
        dataset = _dataset(recipe(v="vividness > 0.5"))
        assert plan_of(lake, dataset).image_checks[-1].tables == ("vivid",)
        assert lake.query("SELECT count(*) FROM vivid") == [(0,)]


def test_a_score_of_pairs_that_nobody_declares_goes_with_its_picture_and_with_its_sentence(tmp_path: Path):
    with opened_new(tmp_path / "lake") as lake:
        lake.execute(
            'CREATE TABLE former (sha256 VARCHAR, content VARCHAR, shard VARCHAR, scorer VARCHAR, "commit" BIGINT, '
            "fitness DOUBLE)"
        )
    with create_or_open(tmp_path / "lake") as lake:
        (score,) = undeclared(lake)
        assert (score.of, score.rule_columns) == ("pair", {"fitness": "DOUBLE"})
        assert score.removed_by == {"sha256": "picture", "content": "sentence"}


def _dataset(published: Recipe) -> Dataset:
    return Dataset("r", 1, published.model_dump_json(), 1, "", False, 0, None, "run", datetime.now(UTC), [])


@pytest.mark.slow
def test_a_column_added_by_a_newer_version_is_null_before_it_and_another_type_is_refused(
    tmp_path: Path, install: Install
):
    install("colours", VIVID)
    create_or_open(tmp_path / "lake").close()
    more = VIVID.replace('"0 to 1"),', '"0 to 1"), Column("hue", "INTEGER", "degrees"),')
    _declare(tmp_path, more)
    with create_or_open(tmp_path / "lake") as lake:
        assert lake.query("SELECT hue FROM vivid") == []
    _declare(tmp_path, more.replace("DOUBLE", "VARCHAR"))
    with pytest.raises(PairmillError, match=r"'vivid' has a column 'vividness' of type DOUBLE, .* declares VARCHAR"):
        create_or_open(tmp_path / "lake")


def _declare(tmp_path: Path, declaration: str) -> None:
    (tmp_path / "site/colours_scores.py").write_text(
        f"from pairmill.catalog.terms.score import Column, Score, Stage\nSCORE = {declaration}\n"
    )
    forget()


def test_two_packages_with_one_column_or_table_are_refused_by_name(install: Install):
    install("colours", VIVID)
    install("paints", VIVID.replace('"vivid"', '"paint"'))
    with pytest.raises(PairmillError, match=r"'colours' and 'paints' both declare the column 'vividness'"):
        declared()
    with pytest.raises(PairmillError, match=r"both declare the table 'vivid'"):
        score = Score("vivid", "image", (Column("a", "DOUBLE", ""),), reads=("pixels",), op="a:B", package="one")
        validate_scores([score, replace(score, columns=(Column("b", "DOUBLE", ""),), package="two")])


@pytest.mark.parametrize(
    ("declaration", "fault"),
    [
        (VIVID.replace("DOUBLE", "FLOAT"), "has the type FLOAT; a score may have BOOLEAN"),
        (VIVID.replace('"pixels"', '"smell"'), "it reads 'smell'; a score of images reads of pixels"),
        (VIVID.replace('"vividness"', '"width"'), "has a name that Pairmill itself uses"),
        (VIVID.replace('"vivid"', '"Vivid; DROP"'), "is no name of letters"),
        (VIVID.replace('"pixels"', '"image_vector"'), "so its stage is CLIP"),
        (VIVID.replace(', op="a:B"', ""), "it names no `op`"),
        (VIVID.replace(", op=", ", stage=Stage.LANGUAGE, op="), "an op that scores images runs at one of PIXELS, CLIP"),
        (VIVID.replace(", op=", ", stage=Stage.CAPTION, op="), "its stage is CAPTION"),
        ("42", r"is no catalog.terms.score.Score"),
        ("1 / 0", "cannot be imported: ZeroDivisionError"),
        ("exit(7)", "cannot be imported: SystemExit: 7"),
    ],
)
def test_a_declaration_that_cannot_work_is_told_with_its_package(install: Install, declaration: str, fault: str):
    install("colours", declaration)
    with pytest.raises(PairmillError, match=rf"(?s)package 'colours'.*{fault}"):
        declared()


def test_a_package_that_hangs_while_it_is_imported_is_named(
    install: Install, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """Its import waits until the line is logged, 5 s at most."""
    monkeypatch.setattr("pairmill.catalog.terms.declared.SLOW_SECONDS", 0.01)
    waits = "[time.sleep(0.01) for _ in range(500) if not logging.getLogger('pairmill').handlers[0].records]"
    monkeypatch.setattr(logging.getLogger("pairmill"), "handlers", [caplog.handler])
    install("colours", f"{VIVID}; import logging, time; {waits}")
    assert any(score.name == "vivid" for score in declared())
    assert "package 'colours' is being imported" in caplog.text and "uninstall it" in caplog.text


def test_a_recipe_that_asks_for_a_score_of_no_package_is_refused(install: Install):
    with pytest.raises(BadRecipe, match="nothing declares 'vivid'; install the package"):
        compile_plan(recipe().model_copy(update={"scores": {"vivid": {}}}), {})
