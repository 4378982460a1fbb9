"""The facts of a cut: made once for the same rows, anew for others, never half."""

import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from catalog import facts
from catalog.cut import cut
from catalog.error import BadQuery
from catalog.lake import Lake, create_or_open
from catalog.plan import Plan
from tests.catalog.test_cut import fill, plan, world

ROW = {
    "images": {"image_id": ["new"], "sha256": ["p01"]},
    "image_quality": {"sha256": ["p01"], "scorer": ["other"]},
    "image_similarity": {"sha256": ["p01"]},
    "image_groups": {"sha256": ["p01"], "group_id": ["p00"]},
    "clusters": {"key": ["p01"]},
    "match_candidates": {"sha256": ["p01"], "content": ["s01"]},
    "sentences": {"sentence_id": ["new"], "content": ["s01"]},
    "sentence_content": {"content": ["new"]},
    "sentence_quality": {"content": ["s01"]},
    "superseded": {"document_id": ["d"], "gone": [True]},
}


def lake_of(path: Path) -> Lake:
    lake = create_or_open(path / "lake")
    fill(lake, *world(7))
    return lake


def kept(path: Path) -> dict[str, int]:
    """The files of facts of a lake, and when each was written."""
    return {file.name: file.stat().st_mtime_ns for file in (path / "lake/.facts").iterdir()}


def decisions(lake: Lake, recipe: Plan) -> tuple[list[tuple], list[tuple]]:
    cut(lake, recipe)
    return lake.query("FROM cut_images ORDER BY image_id"), lake.query("FROM cut_texts ORDER BY image_id, place")


def test_another_threshold_or_cap_is_cut_from_the_same_facts(tmp_path: Path):
    with lake_of(tmp_path) as lake:
        cut(lake, plan())
        made = kept(tmp_path)
        sharper = replace(plan(2), image_checks=tuple(
            replace(check, keep=check.keep.replace("10", "60")) for check in plan().image_checks))  # fmt: skip
        first = decisions(lake, sharper)
        assert kept(tmp_path) == made and len(made) == 1
    for file in (tmp_path / "lake/.facts").iterdir():
        file.unlink()
    with create_or_open(tmp_path / "lake") as lake:
        assert decisions(lake, sharper) == first


def test_another_process_finds_them_made(tmp_path: Path):
    with lake_of(tmp_path) as lake, create_or_open(tmp_path / "lake") as other:
        first = decisions(lake, plan())
        made = kept(tmp_path)
        assert decisions(other, plan()) == first
        assert kept(tmp_path) == made


@pytest.mark.parametrize("table", facts.TABLES)
def test_a_row_more_in_any_table_that_is_read_makes_them_anew_and_removes_the_former(tmp_path: Path, table: str):
    with lake_of(tmp_path) as lake:
        cut(lake, plan())
        before = kept(tmp_path)
        lake.insert(table, pa.table({**ROW[table], "commit": [2]}))
        cut(lake, plan())
        assert len(kept(tmp_path)) == 1 and not kept(tmp_path).keys() & before.keys()


def test_a_row_less_makes_them_anew(tmp_path: Path):
    with lake_of(tmp_path) as lake:
        images, _ = decisions(lake, plan())
        lake.execute("DELETE FROM images WHERE image_id = 'i003'")
        assert {row[1] for row in images} - {row[1] for row in decisions(lake, plan())[0]} == {"i003"}


def test_recipes_that_take_turns_keep_theirs(tmp_path: Path):
    other = replace(plan(), recipe=plan().recipe.model_copy(update={"seed": 6}))
    with lake_of(tmp_path) as lake:
        cut(lake, plan())
        mine = kept(tmp_path)
        cut(lake, other)
        both = kept(tmp_path)
        cut(lake, plan())
        assert len(both) == 2 and mine.items() <= both.items() and kept(tmp_path) == both


def test_ids_whose_hashes_are_equal_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with lake_of(tmp_path) as lake:
        expected = decisions(lake, plan())
    for ways in (("length({0})", "hash({0})"), ("left({0}, 2)", "length({0})", "{0}")):
        for file in (tmp_path / "lake/.facts").iterdir():
            file.unlink()
        monkeypatch.setattr(facts, "WAYS", ways)
        with create_or_open(tmp_path / "lake") as lake:
            assert decisions(lake, plan()) == expected


def test_what_fails_half_way_leaves_nothing_and_the_next_makes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with lake_of(tmp_path) as lake:
        with monkeypatch.context() as patched, pytest.raises(BadQuery, match="no_such_function"):
            patched.setattr(facts, "WAYS", ("no_such_function({0})",))
            cut(lake, plan())
        assert not kept(tmp_path) and not list((tmp_path / "lake").glob(".spill-*/*"))
        cut(lake, plan())
        assert len(kept(tmp_path)) == 1


def test_a_reader_leaves_the_lake_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with lake_of(tmp_path) as lake:
        expected = decisions(lake, plan())
    before = sorted(os.listdir(tmp_path / "lake"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    for _ in range(2):
        with create_or_open(tmp_path / "lake", read_only=True) as lake:
            assert decisions(lake, plan()) == expected
    assert sorted(os.listdir(tmp_path / "lake")) == before
    assert len(list((tmp_path / "tmp").glob("pairmill-facts-*/*/*.duckdb"))) == 1
