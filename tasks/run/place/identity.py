"""Compute the scorers of a recipe: the digests of op version, settings, model content and inputs of each score."""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import reduce
from typing import Any

from pairmill.catalog.recipe.parts_of_texts import OWN, Captioner
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms import demo_weights as demo_terms
from pairmill.catalog.terms.error import BadRecipe, PairmillError
from pairmill.catalog.terms.score import Score
from pairmill.catalog.terms.scores import IMAGE_EMBEDDING, SENTENCE_STRUCTURE
from pairmill.catalog.write.scorer import Scorer, scorer_of
from pairmill.ops.batch import Batch
from pairmill.ops.image.decode import Decode
from pairmill.ops.models.backends import content_digest, fusion_backend, require_images, vision_backend
from pairmill.ops.models.clip.clip import Clip
from pairmill.ops.models.generation import Answering
from pairmill.ops.pair import fuse
from pairmill.ops.text import generation_status, unsupported

OWN_VERSION = 1  # raised when the same document metadata gives another caption


@dataclass(frozen=True)
class Bound:
    """A declared score configured by a recipe: the op with its settings, and the digest of its scorer."""

    score: Score
    op: Callable[[Batch], Batch]
    digest: str


def with_scorers(plan: Plan) -> tuple[Plan, list[Scorer]]:
    """Return the plan with the digests of all scorers that are known before a run, and these scorers, to register.

    Checks all models of the recipe, and reads their bytes once a process. Raises ModelError for a missing or unfit
    model, BadRecipe for a setting that an op does not have, and PairmillError for an op that cannot be imported.
    """
    inputs_first = sorted((score for score in plan.scores if score.op), key=lambda score: bool(score.vector_table))
    configured = [(score, _op(plan.recipe, score), decode_settings(plan.recipe, score)) for score in inputs_first]
    digests = _model_digests(plan.recipe, [op.model for score, op, _ in configured if score.model])
    known = []
    for score, op, decoding in configured:
        weights = digests[op.model] if score.model else ""
        scorer = scorer_of(score, op, decoding, weights, plan.scorers)
        plan = plan.with_scorer(score.table, scorer.digest)
        known.append(scorer)
    return plan, known


def _model_digests(recipe: Recipe, others: Sequence[str]) -> dict[str, str]:
    """Check the recipe's models of texts and tags; return the content digests of these and of ``others``, by spec.

    Raises ModelError for a model that is missing or unfit for its use.
    """
    taggers = [] if recipe.tags is None else [tagger(recipe).spec, *([parser(recipe)] if recipe.tags.mined else [])]
    specs = [recipe.models[captioner.model] for captioner in recipe.captioners]
    for captioner, spec in zip(recipe.captioners, specs, strict=True):
        require_images(captioner.name, spec)
    if recipe.fuse is not None:
        specs.append(fusion_backend(recipe.models[recipe.fuse.model], recipe.fuse.precision, 1).spec)
    return {spec: content_digest(spec) for spec in (*specs, *taggers, *others)}


def bound(plan: Plan, kind: str) -> tuple[Bound, ...]:
    """Return the plan's scores of ``kind`` ('image', 'sentence') that an op computes, each with its configured op.

    Raises PairmillError for an op that cannot be imported, BadRecipe for a setting that an op does not have.
    """
    scores = (score for score in plan.scores if score.op and score.of == kind)
    return tuple(Bound(score, _op(plan.recipe, score), plan.scorer(score.table)) for score in scores)


def model_specs(plan: Plan) -> list[str]:
    """List the specs of the models that a run of the plan may load."""
    defaults = [score.default_model for score in plan.scores if score.model not in plan.recipe.models]
    return [spec for spec in (*plan.recipe.models.values(), *defaults) if spec]


def decode_settings(recipe: Recipe, score: Score) -> dict[str, Any]:
    """Return the decoder's settings that change a score's values; none if it reads no decoded image."""
    if {"pixels", "luma"}.isdisjoint(score.reads):
        return {}
    decode = decoder(recipe)
    return {"decode": decode.version, "side": decode.side, "mode": decode.mode}


def demo_weights(recipe: Recipe, known: Sequence[Scorer]) -> tuple[str, ...]:
    """List the small shipped demo models among captioners, fusion and the scorers ``known``."""
    specs = {recipe.models[each.model] for each in recipe.captioners}
    if recipe.fuse is not None and known:
        specs.add(recipe.models[recipe.fuse.model])
    return demo_terms.demo_weights([*(scorer.model for scorer in known), *map(content_digest, sorted(specs))])


def _op(recipe: Recipe, score: Score) -> Any:
    """Create the op of a score with the recipe's settings. Raises BadRecipe for a setting that the op does not have."""
    made = op_class(score)
    known = {field.name for field in fields(made)}
    given: dict[str, Any] = {name: reduce(_part, key.split("."), recipe) for name, key in score.settings.items()}
    asked = recipe.scores.get(score.name, {})
    if unknown := sorted(asked.keys() - (known - {"version", "model"})):
        may = ", ".join(sorted(known - {"version", "model"})) or "none"
        raise BadRecipe(f"recipe '{recipe.name}', scores.{score.name}: no setting '{unknown[0]}'; it has {may}.")
    if score.model:
        given["model"] = recipe.models.get(score.model, score.default_model)
        if not given["model"]:
            raise BadRecipe(f"recipe '{recipe.name}': the score '{score.name}' needs `models.{score.model}`; name one.")
    return made(**given, **asked)


def _part(settings: Any, name: str) -> Any:
    """Return a part of settings by its name, also of a section that maps names of the user's."""
    return settings[name] if isinstance(settings, dict) else getattr(settings, name)


def op_class(score: Score) -> Any:
    """Import the op's class. Raises PairmillError when it is missing or is no dataclass with a version."""
    module, _, name = score.op.partition(":")
    about, remedy = f"package '{score.package}', score '{score.name}'", "Update or uninstall the package."
    try:
        made = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise PairmillError(f"{about}: its op {score.op} cannot be imported: {error}. {remedy}") from error
    if not is_dataclass(made) or "version" not in {field.name for field in fields(made)}:
        raise PairmillError(f"{about}: {score.op} is no dataclass with a field `version`. {remedy}")
    return made


def decoder(recipe: Recipe) -> Decode:
    """Return the image decoder of all scores, by the recipe's settings."""
    settings, limits = recipe.decoding, recipe.ingest
    return Decode(settings.side, settings.mode, max_pixels=limits.max_pixels, max_bytes=limits.max_bytes)


def clip(recipe: Recipe) -> Clip:
    """Return the recipe's CLIP model, which computes all vectors and similarities."""
    return Clip(recipe.models["clip"], recipe.clip.precision, recipe.clip.batch_size)


def tagger(recipe: Recipe) -> Clip:
    """Return the model that tags images: `models.tagger`, else the recipe's CLIP."""
    return replace(clip(recipe), spec=recipe.models[tagger_name(recipe)])


def tagger_name(recipe: Recipe) -> str:
    """Return the recipe's name of the model that tags images."""
    return "tagger" if "tagger" in recipe.models else IMAGE_EMBEDDING.model


def parser(recipe: Recipe) -> str:
    """Return the spec of the model that parses sentences."""
    return recipe.models.get(SENTENCE_STRUCTURE.model, SENTENCE_STRUCTURE.default_model)


def embedder(plan: Plan, spec: str) -> tuple[Bound, Scorer]:
    """Return the image embedding by the CLIP model ``spec`` instead of the recipe's, with its scorer."""
    models = plan.recipe.models | {IMAGE_EMBEDDING.model: spec}
    other = plan.recipe.model_copy(update={"models": models})
    op, decoding = _op(other, IMAGE_EMBEDDING), decode_settings(other, IMAGE_EMBEDDING)
    scorer = scorer_of(IMAGE_EMBEDDING, op, decoding, content_digest(op.model), plan.scorers)
    return Bound(replace(IMAGE_EMBEDDING, model=tagger_name(plan.recipe)), op, scorer.digest), scorer


def caption_scorer(recipe: Recipe, captioner: Captioner) -> Scorer:
    """Return the scorer of one captioner: model, prompt, token limit, precision and image side, but not its name.

    OWN has a scorer without settings.
    """
    if captioner.name == OWN:
        return Scorer("own captions", "captions", OWN_VERSION, {}, "")
    model = captioning(recipe, captioner)
    own = captioner.model_dump(include={"prompt", "max_tokens", "side", *model.answer_settings})
    settings = {**own, "decode": Decode().version, "status": generation_status.VERSION}
    at_default = own.keys() - captioner.model_dump(exclude_defaults=True).keys()
    weights = content_digest(model.spec)
    return Scorer("caption", "captions", model.version, settings, weights, at_default=frozenset(at_default))


def captioning(recipe: Recipe, captioner: Captioner) -> Answering:
    """Return the model of a captioner, with its settings; it is not loaded."""
    spec = recipe.models[captioner.model]
    model: Any = vision_backend(spec, captioner.precision, captioner.batch_size, captioner.encoding)
    if "processor" in model.answer_settings:
        return replace(model, processor=tuple(sorted(captioner.processor.model_dump().items())))
    return model


def fuser(recipe: Recipe) -> Answering:
    """Return the model that fuses texts, with its settings; it is not loaded."""
    assert recipe.fuse is not None
    return fusion_backend(recipe.models[recipe.fuse.model], recipe.fuse.precision, recipe.fuse.batch_size)


def fuse_scorer(recipe: Recipe, made_from: tuple[str, ...]) -> Scorer:
    """Return the scorer of fused texts, computed from the scorers ``made_from`` ('' for tags if there are none).

    Its digest covers the image side and the decoder if the model sees the image.
    """
    assert recipe.fuse is not None
    model = fuser(recipe)
    own = recipe.fuse.model_dump(include={"prompt", "max_tokens", *model.answer_settings})
    shown = {"side": recipe.fuse.side, "decode": Decode().version} if model.shows_images else {}
    versions = {"status": generation_status.VERSION, "filling": fuse.VERSION, "unsupported": unsupported.VERSION}
    at_default = frozenset(own.keys() - recipe.fuse.model_dump(exclude_defaults=True).keys())
    settings, weights = {**own, **shown, **versions}, content_digest(model.spec)
    return Scorer("fuse", "synthetic", model.version, settings, weights, made_from, at_default)
