"""Caption the images of a wave, the most expensive step, and score by CLIP how well each caption fits."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa

from pairmill.catalog.pending.answer_cache import captions_by_other_pictures, same_request_scorers, with_cached_captions
from pairmill.catalog.pending.changed_inputs import pending_own_captions
from pairmill.catalog.pending.chosen_captions import wave_of_captioner
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.worklist import pending_in_wave
from pairmill.catalog.queries.captioned import by_status
from pairmill.catalog.recipe.parts_of_texts import OWN
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.terms.scores import CAPTION_SIMILARITY, CAPTIONS
from pairmill.ops.models.generation import Answering, Generation
from pairmill.tasks.generate.endpoints import generate_in_rounds
from pairmill.tasks.generate.generative_job import ITEM_ROWS, GenerativeJob, Queries, decoder_of_side, generated_columns
from pairmill.tasks.measure.score_pairs import score_generated, score_texts, text_similarity_scorer
from pairmill.tasks.run.items.partition import Part
from pairmill.tasks.run.place.identity import caption_scorer, captioning
from pairmill.tasks.run.session import Session

FIRST = 200  # captions shown for approval before the cost of the others
FIRST_ITEM = 25  # eight workers caption the first images at once


def select_captions(session: Session) -> None:
    """Restrict the plan to captions and similarities by the recipe's captioners.

    Adds a note on captions that do not count because the model saw their pictures by other settings.
    """
    for place, captioner in enumerate(session.recipe.captioned_by):
        scorer = caption_scorer(session.recipe, captioner)
        session.use(session.plan.of_captioner("captions", place), scorer)
        if captioner.name == OWN:
            continue
        if found := captions_by_other_pictures(session.lake, scorer):
            processor = json.dumps(found.processor).replace('"', "")
            session.note(
                f"captioner '{captioner.name}': {found.n:,} pictures have captions of this model by other picture "
                "settings, which do not count; those among them that the recipe keeps are captioned again (one caption "
                f"took {found.seconds:.2g} s). To use them: --set 'captioners.{captioner.name}.processor={processor}'",
                once=True,
            )
    for place in _compared(session.plan):
        scorer = text_similarity_scorer(session.plan.alone(place), CAPTION_SIMILARITY)
        session.use(session.plan.of_captioner("caption_similarity", place), scorer)


def first_lacking(session: Session) -> int:
    """Return the number of images still to caption before the first captions are shown, 0 if the run shows none."""
    if not session.shows_first:
        return 0
    made = by_status(session.lake, session.plan.scorer(session.plan.first_captions))
    return max(0, FIRST - sum(made.values()))


def own_captions(session: Session) -> None:
    """Store the captions that came along with the pictures, if the recipe takes them for captions."""
    if session.recipe.captions.own is None:
        return
    scorer = caption_scorer(session.recipe, session.recipe.captioned_by[0])
    session.use(session.plan.of_captioner("captions", 0), scorer)
    items = pending_own_captions(session.lake, scorer.digest)
    session.work_rounds(StoreOwnCaptions.stage, items, StoreOwnCaptions(scorer.digest))


def caption(session: Session) -> None:
    """Caption the wave's images by each captioner that the recipe assigns to them, and score the captions by CLIP.

    Scores only the captions of captioners that the recipe compares.
    """
    plan, most = session.plan, FIRST_ITEM if first_lacking(session) else ITEM_ROWS
    for place, captioner in enumerate(session.recipe.captioned_by):
        if captioner.name == OWN:
            continue
        digest, asked = plan.scorer(plan.of_captioner("captions", place)), wave_of_captioner(plan, place)
        items = pending_in_wave(session.lake, plan, CAPTIONS.table, digest, asked=asked)
        _run_captioner(session, f"caption {captioner.name}", items, place, most)
    for place in _compared(plan):
        step = f"{CAPTION_SIMILARITY.step} {plan.recipe.captioned_by[place].name}" if place else ""
        score_texts(session, plan.alone(place), CAPTION_SIMILARITY, CAPTIONS.table, "text", step)
    score_generated(session, CAPTIONS.table)


def _compared(plan: Plan) -> range:
    """Return the indexes of the captioners whose texts CLIP compares with the images; none without CLIP."""
    return plan.compared_captioners if plan.computes(CAPTION_SIMILARITY.table) else range(0)


def _run_captioner(session: Session, step: str, items: Iterable[Sequence[WorkItem]], place: int, most: int) -> None:
    """Caption the images of these rounds, in items of ``most``, by the recipe's captioner at index ``place``."""
    captioner = session.recipe.captioned_by[place]
    scorer = caption_scorer(session.recipe, captioner)

    def job(model: Answering) -> CaptionPictures:
        ask = Queries(model, decoder_of_side(session.recipe, captioner.side), captioner.max_tokens, captioner.prompt)
        return CaptionPictures(ask, captioner.prompt, scorer.digest, captioner.model, name=captioner.name)

    items = with_cached_captions(session.lake, items, same_request_scorers(session.lake, scorer))
    generate_in_rounds(session, step, items, captioning(session.recipe, captioner), job, most)


@dataclass(frozen=True)
class StoreOwnCaptions:
    """Job: store the input ``texts``, captions that came along, as rows of ``captions``; 'empty' for ''."""

    stage: ClassVar[str] = "own captions"
    unit: ClassVar[str] = "pictures"

    scorer: str

    def __call__(self, item: WorkItem) -> list[Part]:
        """Return the rows of one shard's pictures."""
        texts = [Generation(text, 0, "stop", 0.0) for text in item.inputs["texts"]]
        same = {"captioner": OWN, "prompt": ""}
        rows = {name: pa.array([value] * len(texts), pa.string()) for name, value in same.items()}
        statuses = pa.array(["ok" if each.text else "empty" for each in texts], pa.string())
        rows |= {"sha256": pa.array(item.keys, pa.string()), **generated_columns(texts, "text", "status")}
        return [Part(CAPTIONS.table, pa.table(rows | {"status": statuses}), self.scorer)]


@dataclass(frozen=True)
class CaptionPictures(GenerativeJob):
    """Model job: caption images of one shard into ``captions``; ``status`` marks empty, repetitive or cut-off texts."""

    stage: ClassVar[str] = CAPTIONS.step
    table: ClassVar[str] = CAPTIONS.table

    model: str = "captioner"
    name: str = field(kw_only=True)  # the captioner's name in the recipe

    def prompts(self, item: WorkItem) -> dict[str, str]:
        """Return the captioner's prompt for each image."""
        return dict.fromkeys(item.keys, self.prompt)

    def rows(self, item: WorkItem, found: dict[str, Generation]) -> pa.Table:
        """Convert answers by sha256 to rows of ``captions``."""
        rows = {
            "sha256": pa.array(found, pa.string()),
            "captioner": pa.array([self.name] * len(found), pa.string()),
            "prompt": pa.array([self.prompt] * len(found), pa.string()),
            **generated_columns(list(found.values()), "text", "status", (self.prompt,)),
        }
        return pa.table(rows)
