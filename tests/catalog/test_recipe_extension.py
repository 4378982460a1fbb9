"""A recipe that extends another has its settings; the schema of editors accepts what the program accepts."""

from pathlib import Path

import jsonschema
import pytest
import yaml

from pairmill.catalog.recipe.recipe import Recipe, load, recipe_schema
from pairmill.catalog.terms.error import BadRecipe
from pairmill.flows.run.settings import RECIPES

MINE = """
name: mine
extends: 30m
images:
  - {name: short_side, keep: "least(width, height) >= 64"}
  - {name: whole_text, keep: null}
  - {name: wide, keep: "width > height"}
captioners:
  - {name: main, max_tokens: 64}
tags: null
balance: {cap: none}
"""


def recipe_of(folder: Path, text: str) -> Recipe:
    (folder / "mine.yaml").write_text(text)
    return load(folder / "mine.yaml", None, RECIPES)


def test_a_recipe_takes_over_what_it_does_not_set(tmp_path: Path):
    base, mine = load("30m", None, RECIPES), recipe_of(tmp_path, MINE)
    assert mine.name == "mine" and mine.models == base.models and mine.sentences == base.sentences
    assert [rule.name for rule in mine.images] == ["short_side", "aspect_ratio", "fits", "pair_similarity", "wide"]
    assert (mine.images[0].keep, mine.images[1]) == ("least(width, height) >= 64", base.images[1])
    assert mine.captioners == [base.captioners[0].model_copy(update={"max_tokens": 64})]
    assert mine.tags is None and mine.balance.cap is None and mine.balance.clusters == base.balance.clusters


def test_a_recipe_extends_a_file_that_extends_another(tmp_path: Path):
    (tmp_path / "mine.yaml").write_text(MINE)
    file = tmp_path / "second.yaml"
    file.write_text(f"name: second\nextends: {tmp_path}/mine.yaml\nseed: 7\n")
    second = load(file, None, RECIPES)
    assert second.model_copy(update={"name": "mine", "seed": 0}) == recipe_of(tmp_path, MINE)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("extends: 30m", "'name': it is missing"),
        ("name: a\nextends: 31m", "there is no recipe '31m'; did you mean '30m'?"),
        ("name: a\nextends: [30m]", r"'extends': \['30m'\] is no recipe's name or path; name one"),
        ("name: a\nextends: FILE", "is extended in a circle"),
        ("name: a\nextends: 30m\nbalanse: {cap: 3}", "there is no such setting; did you mean 'balance'"),
    ],
)
def test_what_cannot_be_extended_is_refused_in_a_line(tmp_path: Path, text: str, said: str):
    with pytest.raises(BadRecipe, match=said):
        recipe_of(tmp_path, text.replace("FILE", f"{tmp_path}/mine.yaml"))


def test_the_schema_of_editors_accepts_every_shipped_recipe_and_refuses_mistakes():
    schema = recipe_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    check = jsonschema.Draft202012Validator(schema)
    for text in (*(file.read_text() for file in RECIPES.glob("*.yaml")), MINE):
        assert [error.message for error in check.iter_errors(yaml.safe_load(text))] == []
    for wrong in ("name: a", "name: a\nextends: 30m\ncap: 3", "name: a\nextends: 30m\nduplicates: {phash: 99}",
                  "extends: 30m", "name: a\nextends: 30m\nballance: {}"):  # fmt: skip
        assert list(check.iter_errors(yaml.safe_load(wrong))), wrong
