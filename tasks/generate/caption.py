"""Caption the images of a wave, the most expensive step, and score by CLIP how well each caption fits."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa

from pairmill.catalog.pending.answer_cache import (
    captions_by_other_pictures,
    same_request_scorers,
    with_cached_captions,
)
from pairmill.catalog.pending.chosen_captions import wave_of_captioner
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.pending_texts import pending_in_wave
from pairmill.catalog.queries.captioned import by_status
from pairmill.catalog.recipe.parts_of_texts import Captioner
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms.scores import CAPTION_SIMILARITY, CAPTIONS
from pairmill.catalog.write.scorer import Scorer
from pairmill.ops.models.generation import Answering, Generation
from pairmill.tasks.generate.answers import ImageQueries, empty_answers, generated_columns, shown
from pairmill.tasks.generate.endpoints import generate_in_rounds
from pairmill.tasks.generate.generative_job import ITEM_ROWS, GenerativeJob
from pairmill.tasks.generate.text_similarity import score_texts, text_similarity_scorer
from pairmill.tasks.measure.score_pairs import score_generated
from pairmill.tasks.run.items.partition import Part
from pairmill.tasks.run.place.identity import caption_scorer, captioning
from pairmill.tasks.run.session import Session

FIRST = 200  # captions shown for approval before the cost of the others
FIRST_ITEM = 25  # eight workers caption the first images at once


def select_captions(session: Session) -> None:
    """Make the plan read only captions and similarities of the recipe's captioners."""
    for place, captioner in enumerate(session.recipe.captioners):
        scorer = caption_scorer(session.recipe, captioner)
        session.use(session.plan.of_captioner("captions", place), scorer)
        note_other_pictures(session, captioner, scorer)
    for place in _compared(session.plan):
        scorer = text_similarity_scorer(session.plan.alone(place), CAPTION_SIMILARITY)
        session.use(session.plan.of_captioner("caption_similarity", place), scorer)


def note_other_pictures(session: Session, captioner: Captioner, scorer: Scorer) -> None:
    """Note captions that do not count because their pictures were shown by other settings, and how to use them."""
    found = captions_by_other_pictures(session.lake, scorer)
    if found is None:
        return
    processor = json.dumps(found.processor).replace('"', "")
    session.note(
        f"captioner '{captioner.name}': {found.n:,} pictures have captions of this model by other picture settings, "
        "which do not count; those among them that the recipe keeps are captioned again (one caption took "
        f"{found.seconds:.2g} s). To use them: --set 'captioners.{captioner.name}.processor={processor}'",
        once=True,
    )


def first_lacking(session: Session) -> int:
    """Return how many images are to be captioned before the first captions are shown; 0 if none are shown."""
    if not session.shows_first:
        return 0
    made = by_status(session.lake, session.plan.scorer(session.plan.of_captioner("captions", 0)))
    return max(0, FIRST - sum(made.values()))


def caption(session: Session) -> None:
    """Caption the wave's images by each captioner that the recipe assigns, and score captions by CLIP.

    Only the captions of captioners that the recipe compares are scored.
    """
    plan, most = session.plan, FIRST_ITEM if first_lacking(session) else ITEM_ROWS
    for place, captioner in enumerate(session.recipe.captioners):
        digest, asked = plan.scorer(plan.of_captioner("captions", place)), wave_of_captioner(plan, place)
        items = pending_in_wave(session.lake, plan, CAPTIONS.table, digest, asked=asked)
        _run_captioner(session, f"caption {captioner.name}", items, place, most)
    for place in _compared(plan):
        step = f"{CAPTION_SIMILARITY.step} {plan.recipe.captioners[place].name}" if place else ""
        score_texts(session, plan.alone(place), CAPTION_SIMILARITY, CAPTIONS.table, "text", step)
    score_generated(session, CAPTIONS.table)


def _compared(plan: Plan) -> range:
    """Return the indexes of the captioners whose texts CLIP compares with the images; none without CLIP."""
    return plan.compared_captioners if plan.computes(CAPTION_SIMILARITY.table) else range(0)


def _run_captioner(session: Session, step: str, items: Iterable[Sequence[WorkItem]], place: int, most: int) -> None:
    """Caption the images of these rounds, in items of ``most``, by the recipe's captioner at index ``place``."""
    captioner = session.recipe.captioners[place]
    scorer = caption_scorer(session.recipe, captioner)

    def job(model: Answering) -> "CaptionPictures":
        return caption_job(session.recipe, captioner, model, scorer.digest)

    items = with_cached_captions(session.lake, items, same_request_scorers(session.lake, scorer))
    generate_in_rounds(session, step, items, captioning(session.recipe, captioner), captioner.model, job, most)


def caption_job(recipe: Recipe, captioner: Captioner, model: Answering, digest: str) -> "CaptionPictures":
    """Make the job of a captioner with this model."""
    ask = ImageQueries(model, shown(recipe, captioner.side), captioner.max_tokens, captioner.prompt)
    return CaptionPictures(ask, captioner.prompt, digest, captioner.model, name=captioner.name)


@dataclass(frozen=True)
class CaptionPictures(GenerativeJob):
    """Model job: caption images of one shard into ``captions``; ``status`` marks empty, repetitive or cut-off texts.

    Attributes:
        name: The captioner's name in the recipe.
    """

    stage: ClassVar[str] = CAPTIONS.step
    table: ClassVar[str] = CAPTIONS.table

    model: str = "captioner"
    name: str = field(kw_only=True)

    def prompts(self, item: WorkItem) -> dict[str, str]:
        """Return the captioner's prompt for each image."""
        return dict.fromkeys(item.keys, self.prompt)

    def rows(self, item: WorkItem, found: dict[str, Generation]) -> pa.Table:
        """Turn answers by sha256 into rows of ``captions``."""
        rows = {
            "sha256": pa.array(found, pa.string()),
            "captioner": pa.array([self.name] * len(found), pa.string()),
            "prompt": pa.array([self.prompt] * len(found), pa.string()),
            **generated_columns(list(found.values()), "text", "status", (self.prompt,)),
        }
        return pa.table(rows)

    def poisoned(self, item: WorkItem) -> list[Part]:
        """Make rows with empty captions for images that kill their worker."""
        n = len(item.keys)
        same = {"captioner": [self.name] * n, "prompt": [self.prompt] * n}
        return empty_answers("captions", item, "text", "status", self.scorer, **same)
