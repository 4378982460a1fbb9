"""Rules on candidates, and the score that ranks them: what a recipe may name, and what it is told otherwise."""

import pytest

from pairmill.catalog.recipe.plan import compile_plan
from pairmill.catalog.terms.declared import declared, validate_scores
from pairmill.catalog.terms.error import BadPredicate, BadRecipe, PairmillError
from pairmill.catalog.terms.score import Column, Score, Stage, of_generated_texts
from pairmill.flows.run.settings import load_recipe


def test_a_recipe_without_rules_on_candidates_computes_no_score_of_pairs():
    recipe = load_recipe("30m", {})
    assert not {score.name for score in compile_plan(recipe).scores} & {"itm", "caption_itm", "synthetic_itm"}
    assert load_recipe("30m", {"candidates": "[]"}).digest() == recipe.digest()


def test_a_recipe_without_at_least_keeps_its_digest_and_one_above_top_k_is_refused():
    recipe = load_recipe("30m", {})
    assert load_recipe("30m", {"association.at_least": "1"}).digest() == recipe.digest()
    assert load_recipe("30m", {"association.at_least": "3"}).digest() != recipe.digest()
    with pytest.raises(BadRecipe, match="`at_least: 3` is more than `top_k: 2`"):
        load_recipe("30m", {"association.at_least": "3", "association.top_k": "2"})


def test_a_rule_or_the_rank_asks_for_the_score():
    by_rule = load_recipe("30m", {"candidates": "[{name: fits, keep: 'itm_score >= 0.5'}]"})
    by_rank = load_recipe("30m", {"association.rank_by": "itm_score"})
    for recipe in (by_rule, by_rank):
        plan = compile_plan(recipe)
        assert [name for name, _ in plan.candidate_columns] == ["itm_score"]
        assert [score.name for score in plan.scores if score.op and "itm" in score.name] == ["itm"]


def test_the_rank_must_be_a_score_of_pairs():
    with pytest.raises(BadRecipe, match=r"rank_by: no score of pairs has 'itm_scor'; did you mean 'itm_score'\?"):
        compile_plan(load_recipe("30m", {"association.rank_by": "itm_scor"}))


def test_a_rule_on_candidates_reads_no_score_of_a_picture():
    with pytest.raises(BadPredicate, match="sharpness"):
        compile_plan(load_recipe("30m", {"candidates": "[{name: fits, keep: 'sharpness > 1'}]"}))


def test_a_rule_on_candidates_cannot_be_calibrated():
    calibrated = "[{name: fits, keep: 'itm_score >= {threshold}', calibrate: {drop: 0.1}}]"
    with pytest.raises(BadRecipe, match="'fits': a rule on candidates cannot be calibrated"):
        load_recipe("30m", {"candidates": calibrated})


def test_a_package_may_declare_a_score_of_pairs_and_no_other_inputs():
    def of(*reads: str) -> Score:
        column = Column("vqa", "DOUBLE", "0 to 1")
        return Score("vqa", "pair", (column,), Stage.ASSOCIATE, reads, "vqa_op:Vqa", package="vqa")

    good = of("pixels", "text")
    known = validate_scores([*declared(), good, *of_generated_texts(good)])
    assert {"vqa", "caption_vqa", "synthetic_vqa"} <= {score.name for score in known}
    with pytest.raises(PairmillError, match="it reads 'image_vector'; a score of pairs reads of pixels, text"):
        validate_scores([*declared(), of("image_vector", "text")])
