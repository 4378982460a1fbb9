"""Embed the pictures and texts of a proof by its judge, a CLIP that made none of the versions' scores."""

from dataclasses import dataclass, replace
from typing import ClassVar

import pyarrow as pa

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending import proof_pairs
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.worklist import pending_in_wave
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.recipe.plan import Plan, compile_plan
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.scores import IMAGE_EMBEDDING, JUDGE_TEXT
from pairmill.catalog.write.scorer import Scorer, scorer_of
from pairmill.ops.models.backends import content_digest
from pairmill.ops.models.clip.clip import Clip
from pairmill.ops.models.clip.clip_scores import EmbedImages
from pairmill.ops.models.model_digest import image_size
from pairmill.tasks.measure.score_contents import ScoreImages
from pairmill.tasks.run.items.partition import Part
from pairmill.tasks.run.items.rows import to_blobs
from pairmill.tasks.run.place.identity import Bound, clip, decode_settings, decoder
from pairmill.tasks.run.session import Session

# The vectors stand with those of the recipes' CLIPs; another name keeps them out of galleries and searches.
JUDGE_IMAGE = replace(IMAGE_EMBEDDING, name="judge_image")
EMBED = "embed pictures for a proof"


def judge_plan(lake: Lake, versions: list[Dataset], judge: str) -> Plan:
    """Return the plan of a recipe whose one model is the judge, with the first version's limits of decoding.

    Raises ModelError if the judge is missing, PairmillError if it made scores of a version.
    """
    weights = content_digest(judge)
    for dataset in versions:
        if name := proof_pairs.score_by(lake, dataset.scorers, weights):
            raise PairmillError(
                f"--judge '{judge}' is the filter's own: it made the scores '{name}' of {dataset}, and towers find "
                "their own choice good. Name another CLIP."
            )
    own = Recipe.model_validate_json(versions[0].recipe)
    size = {"side": max(own.decoding.side, image_size(judge))}
    kept = {"clip": own.clip, "ingest": own.ingest, "decoding": own.decoding.model_copy(update=size)}
    recipe = Recipe.model_validate({"name": versions[0].name, "models": {"clip": judge}}).model_copy(update=kept)
    return compile_plan(recipe)


def judge_scorers(recipe: Recipe) -> tuple[EmbedImages, Scorer, Scorer]:
    """Return the op of the judge's pictures, and the scorers of its pictures and of its texts."""
    model = clip(recipe)
    weights, op = content_digest(model.spec), EmbedImages(model.spec, model.precision, model.batch_size)
    of_texts = Scorer(JUDGE_TEXT.name, JUDGE_TEXT.table, model.version, {"precision": model.precision}, weights)
    return op, scorer_of(JUDGE_IMAGE, op, decode_settings(recipe, JUDGE_IMAGE), weights, {}), of_texts


def judge_features(session: Session) -> tuple[str, str]:
    """Embed the listed pictures and texts that the judge lacks; return the digests of its two scorers."""
    model = clip(session.recipe)
    op, of_pictures, of_texts = judge_scorers(session.recipe)
    session.register_later([of_pictures, of_texts])
    job = ScoreImages((Bound(JUDGE_IMAGE, op, of_pictures.digest),), decoder(session.recipe))
    table = IMAGE_EMBEDDING.table
    pictures = pending_in_wave(session.lake, session.plan, table, of_pictures.digest, asked="proof_pairs")
    session.work_rounds(EMBED, ([replace(item, tables=(table,)) for item in items] for items in pictures), job)
    texts = proof_pairs.pending_texts(session.lake, of_texts.digest)
    session.work_rounds(JUDGE_TEXT.step, texts, EmbedJudgedTexts(model, of_texts.digest))
    return of_pictures.digest, of_texts.digest


@dataclass(frozen=True)
class EmbedJudgedTexts:
    """Job: embed the texts of the pairs of one shard into ``judge_text``, each distinct text once."""

    model: ClassVar[str] = IMAGE_EMBEDDING.model
    unit: ClassVar[str] = "texts"
    stage: ClassVar[str] = JUDGE_TEXT.step

    clip: Clip
    scorer: str

    def __call__(self, item: WorkItem) -> list[Part]:
        """Embed the texts of one item; return rows of ``judge_text``."""
        texts = {text: n for n, text in enumerate(dict.fromkeys(item.inputs["texts"]))}
        blobs = to_blobs(self.clip.embed_texts([*texts]))
        return [self._part(item, blobs.take(pa.array([texts[text] for text in item.inputs["texts"]])))]

    def poisoned(self, item: WorkItem) -> list[Part]:
        """Make rows with NULL vectors for texts on which the worker dies, so that no later proof tries them again."""
        return [self._part(item, pa.nulls(len(item.keys), pa.binary()))]

    def _part(self, item: WorkItem, vectors: pa.Array) -> Part:
        """Make the rows of the vectors."""
        keys = {name: [key.split(" ")[n] for key in item.keys] for n, name in enumerate(("sha256", "content"))}
        return Part(JUDGE_TEXT.table, pa.table({**keys, JUDGE_TEXT.columns[0].name: vectors}), self.scorer)
