"""Who scores what: every scorer's identity, from the recipe, the ops' versions and the models' content digests."""

from functools import cache

from catalog.recipe.plan import Plan, compile_plan
from catalog.recipe.recipe import Captioner, Recipe
from catalog.write.scorer import Scorer
from ops.image.decode import Decode
from ops.image.image_quality import ImageQuality
from ops.image.phash import PerceptualHash
from ops.models.clip import Clip
from ops.models.model_digest import model_digest
from ops.models.vlm import VisionLanguageModel
from ops.text.sentence_quality import SentenceQuality


def plan(recipe: Recipe) -> tuple[Plan, list[Scorer]]:
    """The compiled recipe with the scorers that are known before the run, and these scorers to be put on record.

    Reads the models' bytes once a process. Raises ModelError for a missing model and BadPredicate for a bad rule, both
    before any work.
    """
    compiled = compile_plan(recipe, {})
    for name in {part.model for part in (*recipe.captioners, recipe.fuse) if part}:
        _digest(recipe.models[name])
    known = [*_image_scorers(recipe), *_sentence_scorers(recipe)]
    for scorer in known:
        compiled = compiled.with_scorer(scorer.table, scorer.digest)
    return compiled, known


def _image_scorers(recipe: Recipe) -> list[Scorer]:
    decode = Decode(side=recipe.decoding.side, mode=recipe.decoding.mode)
    pixels = {"decode": decode.version, "side": decode.side, "mode": decode.mode}
    return [
        Scorer("image_quality", "image_quality", ImageQuality().version, pixels),
        Scorer("image_hash", "image_hash", PerceptualHash().version, pixels),
        Scorer(
            "image_embedding",
            "image_embedding",
            clip(recipe).version,
            {**pixels, **_precision(recipe)},
            _weights(recipe),
        ),
    ]


def _sentence_scorers(recipe: Recipe) -> list[Scorer]:
    return [
        Scorer("sentence_quality", "sentence_quality", SentenceQuality().version, {}),
        Scorer("sentence_embedding", "sentence_embedding", clip(recipe).version, _precision(recipe), _weights(recipe)),
    ]


def clip(recipe: Recipe) -> Clip:
    """The model that all vectors and similarities come from."""
    return Clip(recipe.models["clip"], recipe.clip.precision, recipe.clip.batch_size)


def _precision(recipe: Recipe) -> dict[str, str]:
    return {"precision": recipe.clip.precision}


@cache
def _digest(spec: str) -> str:
    return model_digest(spec)


def _weights(recipe: Recipe) -> str:
    return _digest(recipe.models["clip"])


def caption_scorer(recipe: Recipe, captioner: Captioner) -> Scorer:
    """Identity of one captioner: model, prompt, token limit, precision and the side it is shown. Not its name."""
    settings = captioner.model_dump(include={"prompt", "max_tokens", "precision", "side"})
    spec = recipe.models[captioner.model]
    version = VisionLanguageModel(spec).version
    return Scorer("caption", "captions", version, {**settings, "decode": Decode().version}, _digest(spec))


def fuse_scorer(recipe: Recipe, made_from: tuple[str, ...]) -> Scorer:
    """Identity of the fused text; what it is made from may be '' where the recipe has no tags."""
    assert recipe.fuse is not None
    settings = recipe.fuse.model_dump(include={"prompt", "max_tokens", "precision", "side"})
    spec = recipe.models[recipe.fuse.model]
    version = VisionLanguageModel(spec).version
    return Scorer("fuse", "synthetic", version, {**settings, "decode": Decode().version}, _digest(spec), made_from)
