"""Fuse: make one text of a picture's caption, tags and best sentence, and score by CLIP how well it fits."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from pairmill.catalog.cut.late import judge
from pairmill.catalog.pending.answer_cache import same_request_scorers
from pairmill.catalog.pending.generated import without_unset_thresholds
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.pending_texts import pending_fusion
from pairmill.catalog.terms.scores import SYNTHETIC, SYNTHETIC_SIMILARITY
from pairmill.catalog.write.scorer import Scorer
from pairmill.ops.models.generation import Answering, Generation
from pairmill.ops.models.vision_language.vlm import VisionLanguageModel
from pairmill.ops.pair.fuse import fuse_prompt, instructions
from pairmill.ops.text.unsupported import unsupported
from pairmill.tasks.generate.answers import (
    Answers,
    ImageQueries,
    TextQueries,
    empty_answers,
    generated_columns,
    joined,
    quarantine_parts,
    shown,
    usage,
)
from pairmill.tasks.generate.endpoints import ITEM_ROWS, generate_in_rounds
from pairmill.tasks.generate.text_similarity import score_texts, text_similarity_scorer
from pairmill.tasks.run.identity import fuse_scorer, fuser
from pairmill.tasks.run.model_job import Piece, one_by_one
from pairmill.tasks.run.partition import Part
from pairmill.tasks.run.session import Session

# Texts as long as most: a caption of 40 words, five tags, a sentence of 25.
EXAMPLE = ("word " * 40, ["tag"] * 5, "word " * 25)


def select_fusion(session: Session) -> None:
    """Have the plan read fused texts, and their similarities, by the recipe's scorers of them, once it is known what
    they are made from."""
    recipe, plan = session.recipe, session.plan
    if recipe.fuse is None or (recipe.tags is not None and not plan.scorer("tags")):
        return
    session.use(SYNTHETIC.table, _scorer(session))
    session.use(SYNTHETIC_SIMILARITY.table, text_similarity_scorer(session.plan, SYNTHETIC_SIMILARITY))


def _scorer(session: Session) -> Scorer:
    """Make the identity of the fused text.

    Of several captioners the chosen text itself decides, which each row's input digest holds: another captioner makes
    no fused text anew but those of the pictures whose caption it changes.
    """
    plan = session.plan
    tables = [name for name in SYNTHETIC.made_from if not (name == "captions" and plan.chooses_captions)]
    return fuse_scorer(plan.recipe, tuple(scorer for name in tables for scorer in plan.made_by(name)))


def fuse(session: Session) -> None:
    """Fuse caption, tags and the best real sentence of the wave's pictures into one text, but of those that fall by a
    rule on their caption."""
    settings = session.recipe.fuse
    if settings is None:
        return
    select_fusion(session)
    judge(session.lake, without_unset_thresholds(session.plan))
    scorer = _scorer(session)
    model, decode = fuser(session.recipe), shown(session.recipe, settings.side)
    example = fuse_prompt(settings.prompt, *EXAMPLE)

    def job(model: Answering) -> "FuseTexts":
        if isinstance(model, VisionLanguageModel):
            ask = ImageQueries(model, decode, settings.max_tokens, example)
        else:
            ask = TextQueries(model, settings.max_tokens, example)
        return FuseTexts(ask, settings.prompt, scorer.digest, settings.model)

    items = pending_fusion(session.lake, session.plan, same_request_scorers(session.lake, scorer))
    generate_in_rounds(session, SYNTHETIC.step, items, model, settings.model, job)
    score_texts(session, session.plan, SYNTHETIC_SIMILARITY, SYNTHETIC.table, "synthetic_text")


@dataclass(frozen=True)
class FuseTexts:
    """A model job: fuse texts of pictures, to ``synthetic``. ``model`` is the recipe's name of the model."""

    stage: ClassVar[str] = SYNTHETIC.step
    table: ClassVar[str] = SYNTHETIC.table
    item_rows: ClassVar[int] = ITEM_ROWS

    ask: ImageQueries | TextQueries
    prompt: str
    scorer: str
    model: str = "fuser"

    @property
    def max_in_flight(self) -> int:
        return self.ask.model.max_in_flight

    def __call__(self, item: WorkItem) -> Iterable[Part]:
        return one_by_one(self, item)

    def load(self) -> None:
        self.ask.load()

    def pieces(self, item: WorkItem, rows: int = 0) -> Iterator[Piece]:
        return self.ask.pieces(item, self._prompts(item), rows)

    def prepare(self, piece: Piece) -> Any:
        return self.ask.prepare(piece)

    def infer(self, ready: Any) -> Any:
        return self.ask.infer(ready)

    def fetch(self, running: Any) -> Answers:
        return self.ask.fetch(running)

    def parts(self, item: WorkItem, found: list[Answers]) -> list[Part]:
        answers = joined(item, found)
        made = Part(self.table, self.rows(item, answers.found), self.scorer, usage(answers.found.values()))
        return [made, *quarantine_parts(answers.bad, SYNTHETIC.step)]

    def rows(self, item: WorkItem, found: dict[str, Generation]) -> pa.Table:
        """Make rows of ``synthetic`` of these answers about pictures of the item."""
        prompts = self._prompts(item)
        digests = dict(zip(item.keys, item.inputs["input_digests"], strict=True))
        rows = {
            "sha256": pa.array(found, pa.string()),
            "input_digest": pa.array([digests[sha] for sha in found], pa.string()),
            "prompt": pa.array([prompts[sha] for sha in found], pa.string()),
            **generated_columns(list(found.values()), "synthetic_text", "synthetic_status", instructions(self.prompt)),
            "synthetic_unsupported": pa.array(self._unsupported(item, found), pa.int32()),
        }
        return pa.table(rows)

    def poisoned(self, item: WorkItem) -> list[Part]:
        n = len(item.keys)
        same = {"input_digest": list(item.inputs["input_digests"]), "prompt": [self.prompt] * n}
        same["synthetic_unsupported"] = [0] * n
        return empty_answers("synthetic", item, "synthetic_text", "synthetic_status", self.scorer, **same)

    def _prompts(self, item: WorkItem) -> dict[str, str]:
        texts = zip(*(item.inputs[name] for name in ("captions", "tags", "sentences")), strict=True)
        return {sha: fuse_prompt(self.prompt, *each) for sha, each in zip(item.keys, texts, strict=True)}

    def _unsupported(self, item: WorkItem, found: dict[str, Generation]) -> list[int]:
        texts = zip(*(item.inputs[name] for name in ("captions", "tags", "sentences")), strict=True)
        sources = {
            sha: (caption, *tags, sentence) for sha, (caption, tags, sentence) in zip(item.keys, texts, strict=True)
        }
        return [unsupported(answer.text, sources[sha]) for sha, answer in found.items()]
