"""The settings that a form shows first are those that shipped recipes have."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from pairmill.catalog.recipe.recipe import Recipe
from pairmill.flows.run.settings import RECIPES

SCHEMA = Recipe.model_json_schema()
SECTIONS = SCHEMA["$defs"] | {"Recipe": SCHEMA}
SETTINGS = [(section, name) for section, told in SECTIONS.items() for name in told["properties"]]


def section_of(value: Any) -> str | None:
    """Name the section that a setting's schema refers to; None for a plain value."""
    if isinstance(value, dict):
        if "$ref" in value:
            return value["$ref"].rsplit("/", 1)[1]
        return next(filter(None, map(section_of, value.values())), None)
    return next(filter(None, map(section_of, value)), None) if isinstance(value, list) else None


def written(content: dict[str, Any], section: str) -> Iterator[tuple[str, str]]:
    """List the (section, setting) of a recipe's content."""
    for name, value in content.items() if isinstance(content, dict) else ():
        yield section, name
        if inner := section_of(SECTIONS[section]["properties"][name]):
            for each in value if isinstance(value, list) else [value]:
                yield from written(each, inner)


@pytest.fixture(scope="module")
def shipped() -> set[tuple[str, str]]:
    recipes = [yaml.safe_load(path.read_text()) for path in RECIPES.glob("*.yaml")]
    assert len(recipes) >= 4
    return {each for content in recipes for each in written(content, "Recipe")}


def test_every_section_is_checked():
    assert len(SETTINGS) > 60 and {"Rule", "Balance", "Fetch", "ClipSettings"} <= SECTIONS.keys()


@pytest.mark.parametrize(("section", "name"), SETTINGS)
def test_a_setting_is_common_if_and_only_if_a_shipped_recipe_has_it(
    section: str, name: str, shipped: set[tuple[str, str]]
):
    is_advanced = SECTIONS[section]["properties"][name].get("advanced", False)
    assert is_advanced == ((section, name) not in shipped)
