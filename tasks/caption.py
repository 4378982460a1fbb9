"""Caption: describe the pictures that a wave asks for, the dearest work, and score by CLIP how well a caption fits."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from catalog.pending.by_text import pending_asked
from catalog.pending.item import WorkItem
from catalog.recipe.parts import Captioner
from catalog.terms.scores import CAPTION_SIMILARITY, CAPTIONS
from ops.models.vlm import VisionLanguageModel
from tasks.answers import Answers, AskOfPictures, empty_answers, generated_columns, joined, quarantine_parts, shown
from tasks.run.identity import caption_scorer
from tasks.run.model_job import Piece, one_by_one
from tasks.run.partition import Part
from tasks.run.session import Session
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
    ask = AskOfPictures(model, shown(session.recipe, captioner.side), captioner.max_tokens, captioner.prompt)
    return CaptionPictures(ask, captioner.name, captioner.prompt, digest, captioner.model)


@dataclass(frozen=True)
class CaptionPictures:
    """A model job: caption pictures of one shard, to ``captions``; ``status`` says what is empty, repeats or was cut
    off. ``model`` is the recipe's name of the model."""

    stage: ClassVar[str] = CAPTIONS.step

    ask: AskOfPictures
    name: str
    prompt: str
    scorer: str
    model: str = "captioner"

    def __call__(self, item: WorkItem) -> Iterable[Part]:
        return one_by_one(self, item)

    def load(self) -> None:
        self.ask.load()

    def pieces(self, item: WorkItem, rows: int = 0) -> Iterator[Piece]:
        return self.ask.pieces(item, dict.fromkeys(item.keys, self.prompt), rows)

    def prepare(self, piece: Piece) -> Any:
        return self.ask.prepare(piece)

    def infer(self, ready: Any) -> Answers:
        return self.ask.infer(ready)

    def fetch(self, running: Answers) -> Answers:
        return running

    def parts(self, item: WorkItem, found: list[Answers]) -> list[Part]:
        answers = joined(item, found)
        rows = {
            "sha256": pa.array(answers.found, pa.string()),
            "captioner": pa.array([self.name] * len(answers.found), pa.string()),
            "prompt": pa.array([self.prompt] * len(answers.found), pa.string()),
            **generated_columns(list(answers.found.values()), "text", "status"),
        }
        return [Part("captions", pa.table(rows), self.scorer), *quarantine_parts(answers.bad, CAPTIONS.step)]

    def poisoned(self, item: WorkItem) -> list[Part]:
        n = len(item.keys)
        same = {"captioner": [self.name] * n, "prompt": [self.prompt] * n}
        return empty_answers("captions", item, "text", "status", self.scorer, **same)
