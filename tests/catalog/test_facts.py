"""The facts of a cut: made once for the same rows, anew for others, never half."""

import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pairmill.catalog.cut import facts, facts_matches, facts_tables
from pairmill.catalog.cut.cut import cut, select_survivors
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.lake.schema import released
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.terms.error import BadQuery
from tests.worlds.filled_lake import kept, lake_of
from tests.worlds.random_lake import plan

ROW = {
    "documents": {"document_id": ["new"], "source": ["s"], "uri": ["u"]},
    "images": {"image_id": ["new"], "sha256": ["p01"]},
    "image_quality": {"sha256": ["p01"], "scorer": ["other"]},
    "image_similarity": {"sha256": ["p01"]},
    "image_groups": {"sha256": ["p01"], "group_id": ["p00"]},
    "clusters": {"key": ["p01"]},
    "match_candidates": {"sha256": ["p01"], "content": ["s01"]},
    "sentence_groups": {"content": ["s01"], "group_id": ["s00"]},
    "sentences": {"sentence_id": ["new"], "content": ["s01"]},
    "sentence_content": {"content": ["new"]},
    "sentence_quality": {"content": ["s01"]},
    "superseded": {"document_id": ["d"], "gone": [True]},
}


def decisions(lake: Lake, recipe: Plan) -> tuple[list[tuple], list[tuple]]:
    """What the cut decides, without the numbers of rows, which it does not depend on."""
    cut(lake, recipe)
    images = lake.query("SELECT * EXCLUDE (n) FROM cut_images ORDER BY image_id")
    return images, lake.query("FROM cut_texts ORDER BY image_id, place")


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


@pytest.mark.slow
def test_a_row_more_in_any_table_that_is_read_makes_them_anew_and_removes_the_former(tmp_path: Path):
    """Scores on demand are in no plan here; of these a test of declarations asks the same."""
    with lake_of(tmp_path) as lake:
        facts.attach(lake, plan())
        for table in [table for table in facts_tables.tables_read(lake) if table in released()]:
            before = kept(tmp_path)
            facts.attach(lake, plan())
            assert kept(tmp_path) == before
            lake.insert(table, pa.table({**ROW[table], "commit": [2]}))
            facts.attach(lake, plan())
            assert len(kept(tmp_path)) == 1 and not kept(tmp_path).keys() & before.keys(), table


def test_a_row_less_makes_them_anew(tmp_path: Path):
    with lake_of(tmp_path) as lake:
        images, _ = decisions(lake, plan())
        lake.execute("DELETE FROM images WHERE image_id = 'i003'")
        assert {row[0] for row in images} - {row[0] for row in decisions(lake, plan())[0]} == {"i003"}


def _written_over(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def rotten(file: Path) -> None:
    """What no program wrote: every block but the headers is another, size and time are as they were."""
    before, data = file.stat(), file.read_bytes()
    file.write_bytes(data[:12288] + bytes(each ^ 1 for each in data[12288:]))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:9000])


HARMS = (_written_over, _cut, Path.unlink)


@pytest.mark.parametrize("harm", [rotten, *(pytest.param(each, marks=pytest.mark.slow) for each in HARMS)])
def test_damaged_ones_are_made_anew(tmp_path: Path, harm):
    with lake_of(tmp_path) as lake:
        expected = decisions(lake, plan())
    (file,) = (tmp_path / "lake/.facts").iterdir()
    harm(file)
    harmed = file.read_bytes() if file.exists() else b""
    with create_or_open(tmp_path / "lake") as lake:
        assert decisions(lake, plan()) == expected
    (anew,) = (tmp_path / "lake/.facts").iterdir()
    assert anew.read_bytes() != harmed


# A row's number is of these facts alone: made anew, they may number otherwise.
SURVIVING = "SELECT image_id, s.draw FROM cut_survivors s JOIN facts.images i ON i.rowid = s.n ORDER BY ALL"


def test_survivors_are_found_without_what_lies_behind_them_over_damaged_facts_too(tmp_path: Path):
    with lake_of(tmp_path) as lake:
        cut(lake, plan())
        expected = lake.query(SURVIVING)
    (file,) = (tmp_path / "lake/.facts").iterdir()
    rotten(file)
    with create_or_open(tmp_path / "lake") as lake:
        select_survivors(lake, plan())
        assert lake.query(SURVIVING) == expected and expected
        made = {name for (name,) in lake.query("SELECT table_name FROM duckdb_tables() WHERE temporary")}
        assert "cut_survivors" in made and not made & {"cut_late", "cut_capped", "cut_kept", "cut_given"}


def test_recipes_that_take_turns_keep_theirs(tmp_path: Path):
    other = replace(plan(), recipe=plan().recipe.model_copy(update={"seed": 6}))
    with lake_of(tmp_path) as lake:
        cut(lake, plan())
        mine = kept(tmp_path)
        cut(lake, other)
        both = kept(tmp_path)
        cut(lake, plan())
        assert len(both) == 2 and mine.items() <= both.items() and kept(tmp_path) == both


@pytest.mark.slow
def test_ids_whose_hashes_are_equal_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with lake_of(tmp_path) as lake:
        expected = decisions(lake, plan())
    short = "CAST(length({0}) AS UBIGINT)"
    for keys in ((short, "hash({0})", "{0}"), ("hash(left({0}, 2))", short, "{0}")):
        for file in (tmp_path / "lake/.facts").iterdir():
            file.unlink()
        monkeypatch.setattr(facts_tables, "KEYS", keys)
        with create_or_open(tmp_path / "lake") as lake:
            assert decisions(lake, plan()) == expected


def test_what_fails_half_way_leaves_nothing_and_the_next_makes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with lake_of(tmp_path) as lake:
        with monkeypatch.context() as patched, pytest.raises(BadQuery, match="no_such_function"):
            patched.setattr(facts_tables, "KEYS", ("no_such_function({0})", "{0}"))
            cut(lake, plan())
        assert not kept(tmp_path) and not list((tmp_path / "lake").glob(".spill-*/*"))
        cut(lake, plan())
        assert len(kept(tmp_path)) == 1


@pytest.mark.slow
def test_rows_that_another_process_commits_meanwhile_are_for_the_next_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    fill_images = facts_tables.write_images

    def overtaken(lake: Lake, *rest) -> None:
        with create_or_open(tmp_path / "lake") as other:
            other.insert(
                "image_quality", pa.table({"sha256": ["p01"], "scorer": ["q"], "sharpness": [0.0], "commit": [2]})
            )
            other.insert("images", pa.table({"image_id": ["late"], "sha256": ["p02"], "commit": [2]}))
        fill_images(lake, *rest)

    with lake_of(tmp_path) as lake:
        expected = decisions(lake, plan())
        lake.execute("DETACH facts")
        for file in (tmp_path / "lake/.facts").iterdir():
            file.unlink()
        with monkeypatch.context() as patched:
            patched.setattr(facts_tables, "write_images", overtaken)
            assert decisions(lake, plan()) == expected
        assert "late" in {row[0] for row in decisions(lake, plan())[0]}


def test_ranges_of_keys_hold_each_once_and_equal_ones_together(lake: Lake, monkeypatch: pytest.MonkeyPatch):
    @given(st.lists(st.integers(0, 2**64 - 1)), st.sampled_from((1, 3, 1000)))
    @example([0, 2**64 - 1], 1)
    @example([], 1)
    def hold(keys: list[int], at_once: int) -> None:
        monkeypatch.setattr(facts_tables, "SORTED_AT_ONCE", at_once)
        lake.connection.register("facts_keys", pa.table({"key": pa.array(keys, pa.uint64())}))
        ranges = [found.tolist() for found in facts_tables._ranges(lake)]
        assert sorted(key for found in ranges for key in found) == sorted(keys)
        assert sum(len(set(found)) for found in ranges) == len(set(keys))

    hold()


@given(st.lists(st.integers(0, 9)), st.data())
def test_blocks_of_matches_are_cut_between_pictures(pictures: list[int], data: st.DataObject):
    rows = pa.record_batch({"picture": pa.array(sorted(pictures), pa.uint32()), "row": range(len(pictures))})
    at = sorted(data.draw(st.lists(st.integers(0, len(pictures)))))
    blocks = [rows.slice(first, end - first) for first, end in pairwise([0, *at, len(pictures)])]
    cut_between = list(facts_matches._of_whole_pictures(blocks))
    assert [row for table in cut_between for row in table["row"].to_pylist()] == list(range(len(pictures)))
    seen = [set(table["picture"].to_pylist()) for table in cut_between]
    assert sum(map(len, seen)) == len(set(pictures))


def test_facts_that_another_reader_removes_before_they_are_attached_are_made_again(
    tmp_path: Path, own_temporary_files: Path, monkeypatch: pytest.MonkeyPatch
):
    removed: list[Path] = []
    make = facts._make

    def overtaken(*given) -> Path:
        path = make(*given)
        if not removed:
            removed.append(path)
            path.unlink()
        return path

    with lake_of(tmp_path) as lake:
        expected = decisions(lake, plan())
    monkeypatch.setattr(facts, "_make", overtaken)
    with create_or_open(tmp_path / "lake", read_only=True) as lake:
        assert decisions(lake, plan()) == expected
    assert removed


def test_a_reader_leaves_the_lake_as_it_is(tmp_path: Path, own_temporary_files: Path):
    with lake_of(tmp_path) as lake:
        expected = decisions(lake, plan())
    before = sorted(os.listdir(tmp_path / "lake"))
    for _ in range(2):
        with create_or_open(tmp_path / "lake", read_only=True) as lake:
            assert decisions(lake, plan()) == expected
    assert sorted(os.listdir(tmp_path / "lake")) == before
    assert len(list(own_temporary_files.glob("pairmill-facts-*/*/*.duckdb"))) == 1
