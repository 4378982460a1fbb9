"""Make the identity of every scorer of a recipe: its op's version and settings, its model's content, its inputs."""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache, reduce
from typing import Any

from pairmill.catalog.recipe.parts import Captioner, Fuse
from pairmill.catalog.recipe.plan import Plan, compile_plan
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms.error import BadRecipe, PairmillError
from pairmill.catalog.terms.score import Score
from pairmill.catalog.terms.scores import IMAGE_EMBEDDING, SENTENCE_STRUCTURE
from pairmill.catalog.write.scorer import Scorer
from pairmill.ops.batch import Batch
from pairmill.ops.image.decode import Decode
from pairmill.ops.models.backends import answer_settings, fusion_backend, vision_backend
from pairmill.ops.models.clip.clip import Clip
from pairmill.ops.models.http.http_model import HttpModel
from pairmill.ops.models.language.language_model import LanguageModel
from pairmill.ops.models.model_digest import ModelError, model_digest
from pairmill.ops.models.vision_language.kind_of_model import is_vision_language
from pairmill.ops.models.vision_language.vlm import VisionLanguageModel
from pairmill.ops.pair import fuse
from pairmill.ops.text import generation_status, unsupported
from pairmill.ops.text.noun_phrases import NounPhrases

# Fields of an op that are no setting: hashed by themselves, or placement.
_OWN_FIELDS = {"version", "model", "batch_size"}


@dataclass(frozen=True)
class Bound:
    """A declared score made ready for one recipe: its op with the settings, and the digest of its scorer."""

    score: Score
    op: Callable[[Batch], Batch]
    digest: str


def plan(recipe: Recipe) -> tuple[Plan, list[Scorer]]:
    """Compile the recipe, with the scorers that are known before the run; these are also returned, to be recorded.

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
    """Compile the recipe for what needs no model but these of its captioners. Raises as `plan`."""
    compiled = compile_plan(recipe, {})
    for captioner in captioners:
        _digest(requires_vision(captioner.name, recipe.models[captioner.model]))
    return compiled


def bound(plan: Plan, kind: str) -> tuple[Bound, ...]:
    """Return the scores of ``kind`` ('image', 'sentence') that the plan asks for and an op computes, with their ops.

    Raises PairmillError for an op that cannot be imported, BadRecipe for a setting that an op does not have.
    """
    scores = (score for score in plan.scores if score.op and score.of == kind)
    return tuple(Bound(score, _op(plan.recipe, score), plan.scorer(score.table)) for score in scores)


def model_specs(plan: Plan) -> list[str]:
    """List the specs of the models that a run of the plan may load."""
    defaults = [score.default_model for score in plan.scores if score.model not in plan.recipe.models]
    return [spec for spec in (*plan.recipe.models.values(), *defaults) if spec]


def _scorer(plan: Plan, score: Score) -> Scorer:
    op = _op(plan.recipe, score)
    settings = {field.name: getattr(op, field.name) for field in fields(op) if field.name not in _OWN_FIELDS}
    if not {"pixels", "luma"}.isdisjoint(score.reads):
        decode = decoder(plan.recipe)
        settings |= {"decode": decode.version, "side": decode.side, "mode": decode.mode}
    made_from = (plan.scorer(score.vector_table),) if score.vector_table else ()
    weights = _digest(op.model) if score.model else ""
    return Scorer(score.name, score.table, op.version, settings, weights, made_from)


def _op(recipe: Recipe, score: Score) -> Any:
    """Make the declared op with its settings of the recipe. Raises BadRecipe for one that it does not have."""
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
    """Make the one decoder that feeds all image scores."""
    settings = recipe.decoding
    limits = recipe.ingest
    return Decode(settings.side, settings.mode, max_pixels=limits.max_pixels, max_bytes=limits.max_bytes)


def clip(recipe: Recipe) -> Clip:
    """Make the model that all vectors and similarities come from."""
    return Clip(recipe.models["clip"], recipe.clip.precision, recipe.clip.batch_size)


def tagger(recipe: Recipe) -> Clip:
    """Make the model that tags pictures: `models.tagger`, else the recipe's CLIP."""
    return replace(clip(recipe), spec=recipe.models[tagger_name(recipe)])


def tagger_name(recipe: Recipe) -> str:
    """Return the recipe's name of the model that tags pictures."""
    return "tagger" if "tagger" in recipe.models else IMAGE_EMBEDDING.model


def parser(recipe: Recipe) -> str:
    """Return the spec of the model that parses sentences."""
    return recipe.models.get(SENTENCE_STRUCTURE.model, SENTENCE_STRUCTURE.default_model)


def embedder(plan: Plan, spec: str) -> tuple[Bound, Scorer]:
    """Make the embedding of pictures by the CLIP ``spec`` in place of the recipe's own, and its identity."""
    models = plan.recipe.models | {IMAGE_EMBEDDING.model: spec}
    other = replace(plan, recipe=plan.recipe.model_copy(update={"models": models}))
    scorer = _scorer(other, IMAGE_EMBEDDING)
    sized_as = replace(IMAGE_EMBEDDING, model=tagger_name(plan.recipe))
    return Bound(sized_as, _op(other.recipe, IMAGE_EMBEDDING), scorer.digest), scorer


def noun_scorer(recipe: Recipe, size: int) -> Scorer:
    """Make the identity of the noun phrases counted in a sample of ``size`` sentences: the parser's model decides."""
    spec = parser(recipe)
    return Scorer(
        "noun_counts", "noun_counts", NounPhrases(spec).version, {"seed": recipe.seed, "sample": size}, _digest(spec)
    )


@cache
def _digest(spec: str) -> str:
    return model_digest(spec)


def _later_versions(**versions: int) -> dict[str, int]:
    """Return the versions above 1 of what a scorer uses beside its op: at 1 its digest is what it was without them."""
    return {name: version for name, version in versions.items() if version > 1}


def caption_scorer(recipe: Recipe, captioner: Captioner) -> Scorer:
    """Make one captioner's identity: model, prompt, token limit, precision and the side it is shown, not its name."""
    model = captioning(recipe, captioner)
    named = ("prompt", "max_tokens", "side", *answer_settings(model))
    settings = {name: getattr(captioner, name) for name in named}
    settings |= _later_versions(status=generation_status.VERSION)
    return Scorer("caption", "captions", model.version, {**settings, "decode": Decode().version}, _digest(model.spec))


def captioning(recipe: Recipe, captioner: Captioner) -> VisionLanguageModel | HttpModel:
    """Make the model that a captioner asks."""
    return vision_backend(recipe.models[captioner.model], captioner.precision, captioner.batch_size, captioner.encoding)


def requires_vision(captioner: str, spec: str) -> str:
    """Return ``spec``. Raises ModelError for a model that takes no pictures."""
    if not is_vision_language(spec):
        raise ModelError(
            f"captioner '{captioner}': model '{spec}' works on text alone; name a vision-language model such as "
            "hf:HuggingFaceTB/SmolVLM2-2.2B-Instruct"
        )
    return spec


def fuser(recipe: Recipe) -> VisionLanguageModel | LanguageModel | HttpModel:
    """Make the model that fuses."""
    assert recipe.fuse is not None
    return fusion_backend(recipe.models[recipe.fuse.model], recipe.fuse.precision, recipe.fuse.batch_size)


def fuse_scorer(recipe: Recipe, made_from: tuple[str, ...]) -> Scorer:
    """Make the identity of the fused text; what it is made from may be '' where the recipe has no tags.

    The side and the decoder belong to it where the model is shown the picture.
    """
    assert recipe.fuse is not None
    model = fuser(recipe)
    own = [name for name in answer_settings(model) if name in Fuse.model_fields]
    settings = recipe.fuse.model_dump(include={"prompt", "max_tokens", *own})
    if isinstance(model, VisionLanguageModel):
        settings |= {"side": recipe.fuse.side, "decode": Decode().version}
    settings |= _later_versions(status=generation_status.VERSION, filling=fuse.VERSION, unsupported=unsupported.VERSION)
    return Scorer("fuse", "synthetic", model.version, settings, _digest(model.spec), made_from)
