"""Caption: describe the pictures that a wave asks for, the dearest work, and score by CLIP how well a caption fits."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from pairmill.catalog.pending.answer_cache import same_request_scorers, with_cached_captions
from pairmill.catalog.pending.chosen_captions import wave_of_captioner
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.pending_texts import pending_in_wave
from pairmill.catalog.recipe.parts import Captioner
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms.scores import CAPTION_SIMILARITY, CAPTIONS
from pairmill.ops.models.generation import Answering, Generation
from pairmill.tasks.generate.answers import (
    Answers,
    ImageQueries,
    empty_answers,
    generated_columns,
    joined,
    quarantine_parts,
    shown,
    usage,
)
from pairmill.tasks.generate.endpoints import ITEM_ROWS, generate_in_rounds
from pairmill.tasks.generate.text_similarity import score_texts, text_similarity_scorer
from pairmill.tasks.run.identity import caption_scorer, captioning
from pairmill.tasks.run.model_job import Piece, one_by_one
from pairmill.tasks.run.partition import Part
from pairmill.tasks.run.session import Session


def select_captions(session: Session) -> None:
    """Have the plan read captions, and their similarities, by the recipe's scorers of them."""
    for place, captioner in enumerate(session.recipe.captioners):
        session.use(session.plan.captioner(place), caption_scorer(session.recipe, captioner))
    for place in session.plan.compared_captioners:
        scorer = text_similarity_scorer(session.plan.alone(place), CAPTION_SIMILARITY)
        session.use(session.plan.similarity(place), scorer)


def caption(session: Session) -> None:
    """Caption the wave's pictures by the captioners that the recipe asks for each, and score by CLIP how well the texts
    fit that may be chosen."""
    plan = session.plan
    for place, captioner in enumerate(session.recipe.captioners):
        digest = plan.scorer(plan.captioner(place))
        items = pending_in_wave(session.lake, plan, CAPTIONS.table, digest, asked=wave_of_captioner(plan, place))
        run_captioner(session, f"caption {captioner.name}", items, place)
    for place in plan.compared_captioners:
        step = f"{CAPTION_SIMILARITY.step} {plan.recipe.captioners[place].name}" if place else ""
        score_texts(session, plan.alone(place), CAPTION_SIMILARITY, CAPTIONS.table, "text", step)


def run_captioner(session: Session, step: str, items: Iterable[Sequence[WorkItem]], place: int) -> None:
    """Have the recipe's captioner at ``place`` describe the pictures of these rounds of work."""
    captioner = session.recipe.captioners[place]
    scorer = caption_scorer(session.recipe, captioner)

    def job(model: Answering) -> "CaptionPictures":
        return caption_job(session.recipe, captioner, model, scorer.digest)

    items = with_cached_captions(session.lake, items, same_request_scorers(session.lake, scorer))
    generate_in_rounds(session, step, items, captioning(session.recipe, captioner), captioner.model, job)


def caption_job(recipe: Recipe, captioner: Captioner, model: Answering, digest: str) -> "CaptionPictures":
    """Make the job that has ``model`` caption as ``captioner`` says."""
    ask = ImageQueries(model, shown(recipe, captioner.side), captioner.max_tokens, captioner.prompt)
    return CaptionPictures(ask, captioner.name, captioner.prompt, digest, captioner.model)


@dataclass(frozen=True)
class CaptionPictures:
    """A model job: caption pictures of one shard, to ``captions``; ``status`` says what is empty, repeats or was cut
    off. ``model`` is the recipe's name of the model."""

    stage: ClassVar[str] = CAPTIONS.step
    table: ClassVar[str] = CAPTIONS.table
    item_rows: ClassVar[int] = ITEM_ROWS

    ask: ImageQueries
    name: str
    prompt: str
    scorer: str
    model: str = "captioner"

    @property
    def max_in_flight(self) -> int:
        return self.ask.model.max_in_flight

    def __call__(self, item: WorkItem) -> Iterable[Part]:
        return one_by_one(self, item)

    def load(self) -> None:
        self.ask.load()

    def pieces(self, item: WorkItem, rows: int = 0) -> Iterator[Piece]:
        return self.ask.pieces(item, dict.fromkeys(item.keys, self.prompt), rows)

    def prepare(self, piece: Piece) -> Any:
        return self.ask.prepare(piece)

    def infer(self, ready: Any) -> Any:
        return self.ask.infer(ready)

    def fetch(self, running: Any) -> Answers:
        return self.ask.fetch(running)

    def parts(self, item: WorkItem, found: list[Answers]) -> list[Part]:
        answers = joined(item, found)
        made = Part(self.table, self.rows(item, answers.found), self.scorer, usage(answers.found.values()))
        return [made, *quarantine_parts(answers.bad, CAPTIONS.step)]

    def rows(self, item: WorkItem, found: dict[str, Generation]) -> pa.Table:
        """Make rows of ``captions`` of these answers about pictures of the item."""
        rows = {
            "sha256": pa.array(found, pa.string()),
            "captioner": pa.array([self.name] * len(found), pa.string()),
            "prompt": pa.array([self.prompt] * len(found), pa.string()),
            **generated_columns(list(found.values()), "text", "status", (self.prompt,)),
        }
        return pa.table(rows)

    def poisoned(self, item: WorkItem) -> list[Part]:
        n = len(item.keys)
        same = {"captioner": [self.name] * n, "prompt": [self.prompt] * n}
        return empty_answers("captions", item, "text", "status", self.scorer, **same)
