"""Caption and fuse: the expensive stages, only for what the cut keeps."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa

from catalog.cut.cut import cut
from catalog.pending.by_text import pending_caption_similarity, pending_fusion, pending_kept
from catalog.pending.item import WorkItem
from catalog.recipe.parts import Captioner
from catalog.recipe.recipe import Recipe
from catalog.terms.controls import printable
from catalog.terms.score import Stage
from catalog.terms.scores import CAPTION_SIMILARITY, CAPTIONS, SYNTHETIC
from catalog.write.scorer import Scorer
from ops.fault import Fault
from ops.image.decode import Decode
from ops.models.clip import Clip
from ops.models.generation import Generation
from ops.models.language_model import LanguageModel
from ops.models.vlm import VisionLanguageModel
from ops.pair.fuse import fuse_prompt
from ops.pair.similarity import VERSION as SIMILARITY_VERSION
from ops.pair.similarity import similarity
from ops.text.generation_status import generation_status
from tasks.calibrate import calibrate
from tasks.run.identity import caption_scorer, clip, decoder, fuse_scorer, fuser
from tasks.run.payloads import payloads
from tasks.run.rows import quarantine, read_rows, scalars, to_vectors
from tasks.run.session import Session
from tasks.run.stage import Part

NOTHING = Generation("", 0, True, 0.0)


def caption(session: Session) -> None:
    """Caption kept pictures by every captioner of the recipe, and score by CLIP how well the first one's fits."""
    calibrate(session, "image", Stage.CAPTION)
    calibrate(session, "sentence", Stage.CAPTION)
    cut(session.lake, session.plan)
    for captioner in reversed(session.recipe.captioners):  # the first is the one that pairs and rules read
        scorer = caption_scorer(session.recipe, captioner)
        digest = session.use("captions", scorer)
        items = pending_kept(session.lake, session.plan, "captions")
        session.work_rounds(f"caption {captioner.name}", items, caption_job(session, captioner, digest))
    if session.recipe.captioners:
        score_captions(session)


def caption_job(session: Session, captioner: Captioner, digest: str) -> "CaptionPictures":
    model = VisionLanguageModel(session.recipe.models[captioner.model], captioner.precision, captioner.batch_size)
    return CaptionPictures(
        model, shown(session.recipe, captioner.side), captioner.name, captioner.prompt, captioner.max_tokens, digest
    )


def shown(recipe: Recipe, side: int) -> Decode:
    """Make the decoder for a model that sees pictures at ``side``, with the limits of the recipe's ingest."""
    return replace(decoder(recipe), side=side, mode="exact")


@dataclass(frozen=True)
class CaptionPictures:
    """A job: caption pictures of one shard, to ``captions``; ``status`` says what is empty, repeats or was cut off."""

    stage: ClassVar[str] = CAPTIONS.step

    model: VisionLanguageModel
    decode: Decode
    name: str
    prompt: str
    max_tokens: int
    scorer: str

    def __call__(self, item: WorkItem) -> list[Part]:
        prompts = dict.fromkeys(item.keys, self.prompt)
        found, bad = answers(item, prompts, self.decode, self.model, self.max_tokens)
        rows = {
            "sha256": pa.array(found, pa.string()),
            "captioner": pa.array([self.name] * len(found), pa.string()),
            "prompt": pa.array([self.prompt] * len(found), pa.string()),
            **_generated(list(found.values()), "text", "status"),
        }
        return [Part("captions", pa.table(rows), self.scorer), *quarantine_parts(bad, CAPTIONS.step)]

    def poisoned(self, item: WorkItem) -> list[Part]:
        n = len(item.keys)
        same = {"captioner": [self.name] * n, "prompt": [self.prompt] * n}
        return empty_answers("captions", item, "text", "status", self.scorer, **same)


def answers(
    item: WorkItem, prompts: dict[str, str], decode: Decode, model: VisionLanguageModel, max_tokens: int
) -> tuple[dict[str, Generation], list[Fault]]:
    """Ask the model about each picture; return its answers, and faults of those without one: their answers are empty.

    All pictures decoded before, or the cut would not keep them; one that the lake only refers to may be gone since.
    """
    found: dict[str, Generation] = {}
    bad: list[Fault] = []
    for shas, datas in payloads(item):
        pictures: list[np.ndarray | None] = []
        asked: list[str] = []
        for sha, data in zip(shas, datas, strict=True):
            pixels = data if isinstance(data, Fault) else decode(data)
            if isinstance(pixels, Fault):
                bad.append(pixels.about(sha))
                found[sha] = NOTHING
            else:
                pictures.append(pixels)
                asked.append(sha)
        texts = model.generate(pictures, [prompts[sha] for sha in asked], max_tokens)
        found |= zip(asked, texts, strict=True)
        bad += _faults(asked, texts)
    return found, bad


def text_answers(
    prompts: dict[str, str], model: LanguageModel, max_tokens: int
) -> tuple[dict[str, Generation], list[Fault]]:
    """Ask the model for each picture's prompt, its bytes unread; return its answers, and faults of empty ones."""
    texts = model.generate(list(prompts.values()), max_tokens)
    return dict(zip(prompts, texts, strict=True)), _faults(list(prompts), texts)


def _faults(asked: list[str], texts: list[Generation]) -> list[Fault]:
    return [Fault(sha, text.error, "no text") for sha, text in zip(asked, texts, strict=True) if text.error]


def empty_answers(table: str, item: WorkItem, text: str, status: str, scorer: str, **constants: list) -> list[Part]:
    """Make empty answers for pictures that kill the worker of their model, so that they are not asked again."""
    none = [NOTHING] * len(item.keys)
    rows = {"sha256": pa.array(item.keys, pa.string()), **constants, **_generated(none, text, status)}
    return [Part(table, pa.table(rows), scorer)]


def quarantine_parts(bad: list[Fault], step: str) -> list[Part]:
    """Make quarantine rows of the pictures without an answer (alone out of memory, say)."""
    names = [fault.item for fault in bad]
    return [Part("quarantine", quarantine(names, [""] * len(bad), step, bad))] if bad else []


def _generated(found: list[Generation], text: str, status: str) -> dict[str, pa.Array]:
    return {
        text: pa.array([printable(each.text) for each in found], pa.string()),
        status: pa.array([generation_status(each.text, each.finished) for each in found], pa.string()),
        "n_tokens": pa.array([each.n_tokens for each in found], pa.int32()),
        "seconds": pa.array([round(each.seconds, 4) for each in found], pa.float64()),
    }


def score_captions(session: Session) -> None:
    """Score the CLIP similarity of picture and caption: a caption of something else scores low."""
    made_from = tuple(session.plan.scorer(name) for name in CAPTION_SIMILARITY.made_from)
    table = CAPTION_SIMILARITY.table
    digest = session.use(table, Scorer(CAPTION_SIMILARITY.name, table, SIMILARITY_VERSION, {}, "", made_from))
    items = pending_caption_similarity(session.lake, session.plan, made_from[0])
    session.work_rounds(CAPTION_SIMILARITY.step, items, ScoreCaptions(clip(session.recipe), digest))


@dataclass(frozen=True)
class ScoreCaptions:
    """A job: compare image vectors of one shard with their captions, to ``caption_similarity``."""

    clip: Clip
    scorer: str

    def __call__(self, item: WorkItem) -> list[Part]:
        rows = read_rows(item, ["sha256", "image_vector"], "sha256")
        scores = similarity(to_vectors(rows["image_vector"]), self.clip.embed_texts(item.inputs["texts"]))
        table = pa.table(
            {
                "sha256": rows["sha256"],
                "input_digest": pa.array(item.inputs["input_digests"], pa.string()),
                "caption_similarity": pa.array(scalars(scores), pa.float64()),
            }
        )
        return [Part("caption_similarity", table, self.scorer)]


def fuse(session: Session) -> None:
    """Fuse caption, tags and the best real sentence into one synthetic text, by the prompted model."""
    settings = session.recipe.fuse
    if settings is None:
        return
    made_from = tuple(session.plan.scorer(name) for name in SYNTHETIC.made_from)
    digest = session.use(SYNTHETIC.table, fuse_scorer(session.recipe, made_from))
    job = FuseTexts(
        fuser(session.recipe), shown(session.recipe, settings.side), settings.prompt, settings.max_tokens, digest
    )
    session.work_rounds(SYNTHETIC.step, pending_fusion(session.lake, session.plan), job)


@dataclass(frozen=True)
class FuseTexts:
    """A job: fuse texts of one shard's pictures, to ``synthetic``; what was answered before is not asked again."""

    stage: ClassVar[str] = SYNTHETIC.step

    model: VisionLanguageModel | LanguageModel
    decode: Decode
    prompt: str
    max_tokens: int
    scorer: str

    def __call__(self, item: WorkItem) -> list[Part]:
        known = [key for key, answer in zip(item.keys, item.inputs["known"], strict=True) if answer]
        asked = [key for key in item.keys if key not in set(known)]
        return [*self._recalled(item.only(known)), *(self._asked(item.only(asked)) if asked else ())]

    def _recalled(self, item: WorkItem) -> list[Part]:
        keys = zip(item.keys, item.inputs["input_digests"], item.inputs["known"], strict=True)
        rows = [{"sha256": key, "input_digest": digest, **answer} for key, digest, answer in keys]
        return [Part("synthetic", pa.Table.from_pylist(rows), self.scorer)] if rows else []

    def _asked(self, item: WorkItem) -> list[Part]:
        texts = dict(
            zip(
                item.keys,
                zip(*(item.inputs[name] for name in ("captions", "tags", "sentences")), strict=True),
                strict=True,
            )
        )
        digests = dict(zip(item.keys, item.inputs["input_digests"], strict=True))
        prompts = {sha: fuse_prompt(self.prompt, *texts[sha]) for sha in texts}
        if isinstance(self.model, LanguageModel):
            found, bad = text_answers(prompts, self.model, self.max_tokens)
        else:
            found, bad = answers(item, prompts, self.decode, self.model, self.max_tokens)
        rows = {
            "sha256": pa.array(found, pa.string()),
            "input_digest": pa.array([digests[sha] for sha in found], pa.string()),
            "prompt": pa.array([prompts[sha] for sha in found], pa.string()),
            **_generated(list(found.values()), "synthetic_text", "synthetic_status"),
        }
        return [Part("synthetic", pa.table(rows), self.scorer), *quarantine_parts(bad, SYNTHETIC.step)]

    def poisoned(self, item: WorkItem) -> list[Part]:
        same = {"input_digest": list(item.inputs["input_digests"]), "prompt": [self.prompt] * len(item.keys)}
        return empty_answers("synthetic", item, "synthetic_text", "synthetic_status", self.scorer, **same)
