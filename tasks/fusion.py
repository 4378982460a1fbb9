"""Fuse: make one text of a picture's caption, tags and best sentence, and score by CLIP how well it fits."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from catalog.cut.late import judge
from catalog.pending.by_text import pending_fusion
from catalog.pending.generated import settled
from catalog.pending.item import WorkItem
from catalog.terms.scores import SYNTHETIC, SYNTHETIC_SIMILARITY
from ops.models.language_model import LanguageModel
from ops.pair.fuse import fuse_prompt
from tasks.answers import (
    Answers,
    AskOfPictures,
    AskOfTexts,
    empty_answers,
    generated_columns,
    joined,
    quarantine_parts,
    shown,
)
from tasks.run.identity import fuse_scorer, fuser
from tasks.run.model_job import Piece, one_by_one
from tasks.run.partition import Part
from tasks.run.session import Session
from tasks.text_similarity import score_texts, use_text_similarity

# Texts as long as most: a caption of 40 words, five tags, a sentence of 25.
EXAMPLE = ("word " * 40, ["tag"] * 5, "word " * 25)


def use_fusion(session: Session) -> None:
    """Have the plan read fused texts, and their similarities, by the recipe's scorers of them, once it is known what
    they are made from."""
    recipe, plan = session.recipe, session.plan
    if recipe.fuse is None or (recipe.tags is not None and not plan.scorer("tags")):
        return
    session.use(SYNTHETIC.table, fuse_scorer(recipe, tuple(plan.scorer(name) for name in SYNTHETIC.made_from)))
    use_text_similarity(session, SYNTHETIC_SIMILARITY)


def fuse(session: Session) -> None:
    """Fuse caption, tags and the best real sentence of the wave's pictures into one text, but of those that fall by a
    rule on their caption."""
    settings = session.recipe.fuse
    if settings is None:
        return
    use_fusion(session)
    judge(session.lake, settled(session.plan))
    digest = session.plan.scorer(SYNTHETIC.table)
    model, decode = fuser(session.recipe), shown(session.recipe, settings.side)
    example = fuse_prompt(settings.prompt, *EXAMPLE)
    if isinstance(model, LanguageModel):
        ask = AskOfTexts(model, settings.max_tokens, example)
    else:
        ask = AskOfPictures(model, decode, settings.max_tokens, example)
    job = FuseTexts(ask, settings.prompt, digest, settings.model)
    session.work_rounds(SYNTHETIC.step, pending_fusion(session.lake, session.plan), job)
    score_texts(session, SYNTHETIC_SIMILARITY, SYNTHETIC.table, "synthetic_text")


@dataclass(frozen=True)
class FuseTexts:
    """A model job: fuse texts of one shard's pictures, to ``synthetic``; what was answered before is not asked again.
    ``model`` is the recipe's name of the model."""

    stage: ClassVar[str] = SYNTHETIC.step

    ask: AskOfPictures | AskOfTexts
    prompt: str
    scorer: str
    model: str = "fuser"

    def __call__(self, item: WorkItem) -> Iterable[Part]:
        return one_by_one(self, item)

    def load(self) -> None:
        self.ask.load()

    def pieces(self, item: WorkItem, rows: int = 0) -> Iterator[Piece]:
        asked = [key for key, answer in zip(item.keys, item.inputs["known"], strict=True) if not answer]
        return self.ask.pieces(item.only(asked), self._prompts(item.only(asked)), rows) if asked else iter(())

    def prepare(self, piece: Piece) -> Any:
        return self.ask.prepare(piece)

    def infer(self, ready: Any) -> Answers:
        return self.ask.infer(ready)

    def fetch(self, running: Answers) -> Answers:
        return running

    def parts(self, item: WorkItem, found: list[Answers]) -> list[Part]:
        known = [key for key, answer in zip(item.keys, item.inputs["known"], strict=True) if answer]
        answers, prompts = joined(item, found), self._prompts(item)
        digests = dict(zip(item.keys, item.inputs["input_digests"], strict=True))
        rows = {
            "sha256": pa.array(answers.found, pa.string()),
            "input_digest": pa.array([digests[sha] for sha in answers.found], pa.string()),
            "prompt": pa.array([prompts[sha] for sha in answers.found], pa.string()),
            **generated_columns(list(answers.found.values()), "synthetic_text", "synthetic_status"),
        }
        made = [Part("synthetic", pa.table(rows), self.scorer)] if answers.found else []
        return [*self._recalled(item.only(known)), *made, *quarantine_parts(answers.bad, SYNTHETIC.step)]

    def poisoned(self, item: WorkItem) -> list[Part]:
        same = {"input_digest": list(item.inputs["input_digests"]), "prompt": [self.prompt] * len(item.keys)}
        return empty_answers("synthetic", item, "synthetic_text", "synthetic_status", self.scorer, **same)

    def _prompts(self, item: WorkItem) -> dict[str, str]:
        texts = zip(*(item.inputs[name] for name in ("captions", "tags", "sentences")), strict=True)
        return {sha: fuse_prompt(self.prompt, *each) for sha, each in zip(item.keys, texts, strict=True)}

    def _recalled(self, item: WorkItem) -> list[Part]:
        keys = zip(item.keys, item.inputs["input_digests"], item.inputs["known"], strict=True)
        rows = [{"sha256": key, "input_digest": digest, **answer} for key, digest, answer in keys]
        return [Part("synthetic", pa.Table.from_pylist(rows), self.scorer)] if rows else []
