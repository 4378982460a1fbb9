"""Compute the scorers of a recipe: digests of op version, settings, model content and inputs behind each score."""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache, reduce
from typing import Any

from pairmill.catalog.recipe.parts_of_texts import Captioner, Fuse
from pairmill.catalog.recipe.plan import Plan, compile_plan
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms.error import BadRecipe, PairmillError
from pairmill.catalog.terms.score import Score
from pairmill.catalog.terms.scores import IMAGE_EMBEDDING, SENTENCE_STRUCTURE
from pairmill.catalog.write.scorer import Scorer
from pairmill.ops.batch import Batch
from pairmill.ops.image.decode import Decode
from pairmill.ops.models.backends import accepts_images, fusion_backend, vision_backend
from pairmill.ops.models.clip.clip import Clip
from pairmill.ops.models.generation import Answering
from pairmill.ops.models.model_digest import ModelError, model_digest
from pairmill.ops.models.vision_language.vlm import VisionLanguageModel
from pairmill.ops.pair import fuse
from pairmill.ops.text import generation_status, unsupported
from pairmill.ops.text.noun_phrases import NounPhrases

# Fields of an op that are not hashed as settings: they are hashed separately, or are placement.
_OWN_FIELDS = {"version", "model", "batch_size"}


@dataclass(frozen=True)
class Bound:
    """A declared score configured by a recipe: the op with its settings, and the digest of its scorer."""

    score: Score
    op: Callable[[Batch], Batch]
    digest: str


def plan(recipe: Recipe) -> tuple[Plan, list[Scorer]]:
    """Compile the recipe with the scorers that are known before a run; also return these, to be registered.

    Reads the models' bytes once a process. Raises ModelError for a missing model, BadPredicate for a bad rule and
    BadRecipe for a setting that an op does not have, all before any work.
    """
    compiled = captioning_plan(recipe, recipe.captioners)
    if recipe.fuse is not None:
        _digest(fuser(recipe).spec)
    if recipe.tags is not None:
        for spec in (tagger(recipe).spec, *([parser(recipe)] if recipe.tags.mined else [])):
            _digest(spec)
    known = []
    for score in sorted((score for score in compiled.scores if score.op), key=lambda score: bool(score.vector_table)):
        scorer = _scorer(compiled, score)
        compiled = compiled.with_scorer(score.table, scorer.digest)
        known.append(scorer)
    return compiled, known


def captioning_plan(recipe: Recipe, captioners: Sequence[Captioner]) -> Plan:
    """Compile the recipe and check the models of ``captioners`` only. Raises as `plan`."""
    compiled = compile_plan(recipe, {})
    for captioner in captioners:
        _digest(requires_vision(captioner.name, recipe.models[captioner.model]))
    return compiled


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


def _scorer(plan: Plan, score: Score) -> Scorer:
    """Return the scorer of a score that an op computes."""
    op = _op(plan.recipe, score)
    settings = {field.name: getattr(op, field.name) for field in fields(op) if field.name not in _OWN_FIELDS}
    if not {"pixels", "luma"}.isdisjoint(score.reads):
        decode = decoder(plan.recipe)
        settings |= {"decode": decode.version, "side": decode.side, "mode": decode.mode}
    made_from = (plan.scorer(score.vector_table),) if score.vector_table else ()
    weights = _digest(op.model) if score.model else ""
    return Scorer(score.name, score.table, op.version, settings, weights, made_from)


def _op(recipe: Recipe, score: Score) -> Any:
    """Create the op of a score with the recipe's settings. Raises BadRecipe for a setting that the op does not have."""
    made = _op_class(score)
    known = {field.name for field in fields(made)}
    given: dict[str, Any] = {name: reduce(getattr, key.split("."), recipe) for name, key in score.settings.items()}
    asked = recipe.scores.get(score.name, {})
    if unknown := sorted(asked.keys() - (known - {"version", "model"})):
        may = ", ".join(sorted(known - {"version", "model"})) or "none"
        raise BadRecipe(f"recipe '{recipe.name}', scores.{score.name}: no setting '{unknown[0]}'; it has {may}.")
    if score.model:
        given["model"] = recipe.models.get(score.model, score.default_model)
        if not given["model"]:
            raise BadRecipe(f"recipe '{recipe.name}': the score '{score.name}' needs `models.{score.model}`; name one.")
    return made(**given, **asked)


def _op_class(score: Score) -> Any:
    """Import the op's class. Raises PairmillError when it is missing or is no dataclass with a version."""
    module, _, name = score.op.partition(":")
    try:
        made = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise PairmillError(
            f"package '{score.package}', score '{score.name}': its op {score.op} cannot be imported: {error}. Update "
            "or uninstall the package."
        ) from error
    if not is_dataclass(made) or "version" not in {field.name for field in fields(made)}:
        raise PairmillError(
            f"package '{score.package}', score '{score.name}': {score.op} is no dataclass with a field `version`. "
            "Update or uninstall the package."
        )
    return made


def decoder(recipe: Recipe) -> Decode:
    """Return the decoder that feeds all image scores."""
    settings = recipe.decoding
    limits = recipe.ingest
    return Decode(settings.side, settings.mode, max_pixels=limits.max_pixels, max_bytes=limits.max_bytes)


def clip(recipe: Recipe) -> Clip:
    """Return the CLIP model of all vectors and similarities."""
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
    """Return the image embedding by another CLIP (``spec``) than the recipe's, with its scorer."""
    models = plan.recipe.models | {IMAGE_EMBEDDING.model: spec}
    other = replace(plan, recipe=plan.recipe.model_copy(update={"models": models}))
    scorer = _scorer(other, IMAGE_EMBEDDING)
    sized_as = replace(IMAGE_EMBEDDING, model=tagger_name(plan.recipe))
    return Bound(sized_as, _op(other.recipe, IMAGE_EMBEDDING), scorer.digest), scorer


def noun_scorer(recipe: Recipe, size: int) -> Scorer:
    """Return the scorer of noun phrases counted in a sample of ``size`` sentences; the parser's model is part of it."""
    spec = parser(recipe)
    return Scorer(
        "noun_counts", "noun_counts", NounPhrases(spec).version, {"seed": recipe.seed, "sample": size}, _digest(spec)
    )


@cache
def _digest(spec: str) -> str:
    """Return the content digest of a model, cached."""
    return model_digest(spec)


def _later_versions(**versions: int) -> dict[str, int]:
    """Return the versions above 1 of code that a scorer uses beside its op.

    Version 1 is left out: the digest must equal that of a lake from before these versions existed.
    """
    return {name: version for name, version in versions.items() if version > 1}


def caption_scorer(recipe: Recipe, captioner: Captioner) -> Scorer:
    """Return the scorer of one captioner: model, prompt, token limit, precision and image side, but not its name.

    Picture settings are part of it only where some are set, so that captions from before these settings stay valid.
    """
    model = captioning(recipe, captioner)
    named = ("prompt", "max_tokens", "side", *model.answer_settings)
    settings = {name: getattr(captioner, name) for name in named if name != "processor"}
    if "processor" in named and (pictures := captioner.processor.model_dump()):
        settings["processor"] = pictures
    settings |= _later_versions(status=generation_status.VERSION)
    return Scorer("caption", "captions", model.version, {**settings, "decode": Decode().version}, _digest(model.spec))


def captioning(recipe: Recipe, captioner: Captioner) -> Answering:
    """Return the model of a captioner."""
    spec = recipe.models[captioner.model]
    model = vision_backend(spec, captioner.precision, captioner.batch_size, captioner.encoding)
    if isinstance(model, VisionLanguageModel):  # a server prepares pictures by settings of its own
        return replace(model, processor=tuple(sorted(captioner.processor.model_dump().items())))
    return model


def requires_vision(captioner: str, spec: str) -> str:
    """Return ``spec``. Raises ModelError for a model without image input."""
    if not accepts_images(spec):
        raise ModelError(
            f"captioner '{captioner}': model '{spec}' works on text alone; name a vision-language model such as "
            "hf:HuggingFaceTB/SmolVLM2-2.2B-Instruct"
        )
    return spec


def fuser(recipe: Recipe) -> Answering:
    """Return the model that fuses texts."""
    assert recipe.fuse is not None
    return fusion_backend(recipe.models[recipe.fuse.model], recipe.fuse.precision, recipe.fuse.batch_size)


def fuse_scorer(recipe: Recipe, made_from: tuple[str, ...]) -> Scorer:
    """Return the scorer of the fused text; an entry of ``made_from`` is '' where the recipe has no tags.

    The image side and the decoder are part of it where the model sees the image.
    """
    assert recipe.fuse is not None
    model = fuser(recipe)
    own = [name for name in model.answer_settings if name in Fuse.model_fields]
    settings = recipe.fuse.model_dump(include={"prompt", "max_tokens", *own})
    if model.shows_images:
        settings |= {"side": recipe.fuse.side, "decode": Decode().version}
    settings |= _later_versions(status=generation_status.VERSION, filling=fuse.VERSION, unsupported=unsupported.VERSION)
    return Scorer("fuse", "synthetic", model.version, settings, _digest(model.spec), made_from)
