"""Caption: describe the pictures that a wave asks for, the dearest work, and score by CLIP how well a caption fits."""

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from catalog.pending.by_text import pending_asked
from catalog.pending.item import WorkItem
from catalog.recipe.parts import Captioner
from catalog.terms.scores import CAPTION_SIMILARITY, CAPTIONS
from ops.image.decode import Decode
from ops.models.vlm import VisionLanguageModel
from tasks.answers import answers, empty_answers, generated_columns, quarantine_parts, shown
from tasks.run.identity import caption_scorer
from tasks.run.session import Session
from tasks.run.stage import Part
from tasks.text_similarity import score_texts, use_text_similarity


def use_captions(session: Session) -> None:
    """Have the plan read captions, and their similarities, by the recipe's scorers of them."""
    for place, captioner in enumerate(session.recipe.captioners):
        session.use(session.plan.captioner(place), caption_scorer(session.recipe, captioner))
    if session.recipe.captioners:
        use_text_similarity(session, CAPTION_SIMILARITY)


def caption(session: Session) -> None:
    """Caption the wave's pictures by every captioner of the recipe, and score by CLIP how well the first one's fits."""
    for place, captioner in enumerate(session.recipe.captioners):
        digest = session.plan.scorer(session.plan.captioner(place))
        items = pending_asked(session.lake, session.plan, CAPTIONS.table, digest)
        session.work_rounds(f"caption {captioner.name}", items, caption_job(session, captioner, digest))
    if session.recipe.captioners:
        score_texts(session, CAPTION_SIMILARITY, CAPTIONS.table, "text")


def caption_job(session: Session, captioner: Captioner, digest: str) -> "CaptionPictures":
    model = VisionLanguageModel(session.recipe.models[captioner.model], captioner.precision, captioner.batch_size)
    return CaptionPictures(
        model, shown(session.recipe, captioner.side), captioner.name, captioner.prompt, captioner.max_tokens, digest
    )


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
            **generated_columns(list(found.values()), "text", "status"),
        }
        return [Part("captions", pa.table(rows), self.scorer), *quarantine_parts(bad, CAPTIONS.step)]

    def poisoned(self, item: WorkItem) -> list[Part]:
        n = len(item.keys)
        same = {"captioner": [self.name] * n, "prompt": [self.prompt] * n}
        return empty_answers("captions", item, "text", "status", self.scorer, **same)
