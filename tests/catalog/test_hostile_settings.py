"""Whatever stands in a recipe, a --set, a lake.yaml or the path of one: it is used, or refused in one sentence."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.lake.location import locate
from catalog.lake.opening import create_or_open
from catalog.recipe.plan import compile_plan
from catalog.terms.error import BadRecipe, PairmillError
from flows.settings import load_recipe

DEEP = "[" * 20_000 + "]" * 20_000
NO_YAML = [DEEP, "{a: " * 5_000 + "1" + "}" * 5_000, "\n".join(" " * n + "a:" for n in range(2_000)), "1" * 5_000,
           "2024-99-99", "!!int x", "!!float x", "!!timestamp x", "!!binary x", "&a [*a]", "&a {name: *a}", "<<: 3",
           "? {a: b}\n: c", "\0"]  # fmt: skip
NAMES = ["deep list", "deep map", "deep block", "digits", "date", "int", "float", "time", "binary", "loop", "own loop",
         "merge", "map as key", "NUL"]  # fmt: skip


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


@pytest.mark.parametrize("number", ["1e400", "-1e400", "1" + "0" * 400], ids=["large", "small", "long"])
def test_a_number_beyond_all_columns_is_a_hostile_predicate(number: str):
    with pytest.raises(BadRecipe, match=r"rule 'short_side'.*too large"):
        compile_plan(load_recipe("demo", {"images.short_side.keep": f"width < {number}"}), {})


@pytest.mark.parametrize("key", ["images." + "9" * 5_000, "images.²", "", ".", "tags.vocabulary"])
def test_a_hostile_key_is_refused(key: str):
    with pytest.raises(BadRecipe):
        load_recipe("demo", {key: "/proc/self/mem"})


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
