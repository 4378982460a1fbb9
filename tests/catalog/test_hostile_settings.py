"""Whatever stands in a recipe, a --set, a lake.yaml or the path of one: it is used, or refused in one sentence."""

from contextlib import nullcontext, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmill.catalog.lake.location import locate
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.lake.yaml_text import parse_yaml
from pairmill.catalog.recipe.plan import compile_plan
from pairmill.catalog.terms.error import BadRecipe, PairmillError
from pairmill.flows.run.settings import load_recipe

DEEP = "[" * 20_000 + "]" * 20_000
NO_YAML = [DEEP, "{a: " * 5_000 + "1" + "}" * 5_000, "\n".join(" " * n + "a:" for n in range(2_000)), "1" * 5_000,
           "2024-99-99", "!!int x", "!!float x", "!!timestamp x", "!!binary x", "&a [*a]", "&a {name: *a}", "<<: 3",
           "? {a: b}\n: c", "\0", "name: a\nseed: 1\nname: b", "{images: [{a: {b: 1, b: 2}}]}"]  # fmt: skip
NAMES = ["deep list", "deep map", "deep block", "digits", "date", "int", "float", "time", "binary", "loop", "own loop",
         "merge", "map as key", "NUL", "key twice", "inner key twice"]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("text", NO_YAML, ids=NAMES)
def test_a_hostile_text_is_refused_as_recipe_as_value_and_as_lake(tmp_path: Path, text: str):
    (tmp_path / "recipe.yaml").write_text(text)
    (tmp_path / "lake.yaml").write_text(text)
    with pytest.raises(BadRecipe):
        load_recipe(str(tmp_path / "recipe.yaml"))
    with pytest.raises(BadRecipe):
        load_recipe("demo", {"seed": text})
    with pytest.raises(PairmillError):
        locate(tmp_path)


def test_a_key_that_stands_twice_is_refused_with_its_line_and_what_is_merged_is_not(tmp_path: Path):
    (tmp_path / "twice.yaml").write_text("name: a\nbalance:\n  cap: 3\n  clusters: 7\n  cap: 4\n")
    with pytest.raises(BadRecipe, match=r"line 5, .*'cap' stands twice \(.* line 3 .*leave one of them out") as told:
        load_recipe(str(tmp_path / "twice.yaml"))
    assert "\n" not in str(told.value)
    assert parse_yaml("a: &a {x: 1, y: 2}\nb: &b {<<: *a, x: 3}\nc: {<<: *b, x: 4}")["c"] == {"x": 4, "y": 2}


@pytest.mark.parametrize("key", ["balance.cap", "association.max_uses", "ingest.max_bytes", "seed"])
def test_a_count_beyond_all_columns_is_refused(key: str):
    with pytest.raises(BadRecipe, match=f"'{key}': .*is too large; write "):
        load_recipe("demo", {key: "99999999999999999999"})
    assert load_recipe("demo", {key: "1000000000"})


@pytest.mark.parametrize(
    ("keep", "is_empty"),
    [
        ("width between 5 and 3", True),
        ("height > 1 AND width BETWEEN 5 AND -3.5 -- a slip", True),
        ("width >= 5 and height > 2 and width < 3", True),
        ("width > 5 and width <= 5", True),
        ("width >= 3 * height and width <= 2 * height", True),
        ("width between 5 and 5", False),
        ("width >= 5 and height < 3", False),
        ("width >= 5 or width < 3", False),
    ],
)
def test_a_rule_that_no_value_passes_is_refused_by_its_name(keep: str, is_empty: bool):
    said = r"rule 'short_side': no value of width.* passes"
    with pytest.raises(BadRecipe, match=said) if is_empty else nullcontext():
        load_recipe("demo", {"images.short_side.keep": keep})


@pytest.mark.parametrize("number", ["1e400", "-1e400", "1" + "0" * 400], ids=["large", "small", "long"])
def test_a_number_beyond_all_columns_is_a_hostile_predicate(number: str):
    with pytest.raises(BadRecipe, match=r"rule 'short_side'.*too large"):
        compile_plan(load_recipe("demo", {"images.short_side.keep": f"width < {number}"}), {})


@pytest.mark.parametrize("key", ["images." + "9" * 5_000, "images.²", "", ".", "tags.vocabulary"])
def test_a_hostile_key_is_refused(key: str):
    with pytest.raises(BadRecipe):
        load_recipe("demo", {key: "/proc/self/mem"})


@pytest.mark.parametrize("typo", ["s3:/bucket/lake", "S3://bucket/lake", "s3:bucket"])
def test_data_that_is_nearly_on_s3_makes_no_folder_of_that_name(tmp_path: Path, typo: str):
    (tmp_path / "lake.yaml").write_text(f"data_path: {typo}")
    with pytest.raises(PairmillError, match="two slashes"):
        create_or_open(tmp_path)
    assert len(list(tmp_path.iterdir())) == 1


def test_no_lake_is_made_in_a_folder_that_holds_other_things(tmp_path: Path):
    (tmp_path / "pictures").mkdir()
    for name in ("b.jpg", "a.jpg", "c.jpg", "d.jpg"):
        (tmp_path / "pictures" / name).write_bytes(b"x")
    with pytest.raises(PairmillError, match=r"other things \(a.jpg, b.jpg, c.jpg and 1 more\)\. Name a new") as told:
        create_or_open(tmp_path / "pictures")
    assert "\n" not in str(told.value) and len(list((tmp_path / "pictures").iterdir())) == 4
    (tmp_path / "lake.yaml").write_text("data_path: pictures")
    with pytest.raises(PairmillError, match="other things"):
        create_or_open(tmp_path)
    (tmp_path / "lake.yaml").write_text("data_path: data")  # whoever wrote it chose the folder
    create_or_open(tmp_path).close()
    (tmp_path / "pictures" / "new").mkdir()
    (tmp_path / "pictures" / "new" / ".gitkeep").touch()
    create_or_open(tmp_path / "pictures" / "new").close()


LONG = "x" * 300
PATHS = ["/proc/x", "/proc", "a\0b", LONG, "/" + "a/" * 3_000, "~nobody-of-this-name/x", "\ud800", "/dev/null/x"]


@pytest.mark.parametrize("path", PATHS, ids=ascii)
@pytest.mark.parametrize("read_only", [True, False])
def test_a_hostile_path_of_a_lake_is_refused(tmp_path: Path, monkeypatch, path: str, read_only: bool):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PairmillError):
        create_or_open(path, read_only)


@pytest.mark.parametrize("path", ["a\0b.yaml", f"{LONG}.yaml", "~nobody-of-this-name/x.yaml"], ids=ascii)
def test_a_hostile_path_of_a_recipe_is_refused(path: str):
    with pytest.raises(BadRecipe):
        load_recipe(path)


KEYS = ["seed", "name", "sources", "images", "images.0", "images.short_side.keep", "balance.cap", "scores", "models",
        "models.clip", "captioners", "tags", "fuse", "ingest.max_bytes", "clip.batch_size", "decoding"]  # fmt: skip
TEXTS = st.one_of(st.text(max_size=40), st.text("[]{}:,&*!?|>%@-.0123456789eExaninf'\"# \n", max_size=40),
                  st.floats().map(repr), st.integers().map(str))  # fmt: skip


@given(st.sampled_from(KEYS), TEXTS)
def test_any_value_is_used_or_refused_never_hostile(key: str, text: str):
    with suppress(BadRecipe):
        compile_plan(load_recipe("demo", {key: text}), {})
