"""Score by CLIP how well a generated text fits its image, from the image's stored vector."""

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.pending_texts import pending_text_similarity
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.terms.score import Score
from pairmill.catalog.terms.scores import IMAGE_EMBEDDING
from pairmill.catalog.write.scorer import Scorer
from pairmill.ops.models.clip.clip import Clip
from pairmill.ops.pair.similarity import VERSION, similarity
from pairmill.tasks.run.items.partition import Part
from pairmill.tasks.run.items.rows import read_rows, scalars, to_vectors
from pairmill.tasks.run.place.identity import clip
from pairmill.tasks.run.session import Session


def text_similarity_scorer(plan: Plan, score: Score) -> Scorer:
    """Return the scorer of ``score``, a similarity of the plan's texts and image vectors."""
    return Scorer(score.name, score.table, VERSION, {}, "", tuple(plan.scorer(name) for name in score.made_from))


def score_texts(session: Session, plan: Plan, score: Score, texts: str, column: str, step: str = "") -> None:
    """Score the wave's texts against their images; a text about something else has a low similarity.

    Args:
        session: The run.
        plan: The plan by which the texts are read.
        score: The similarity.
        texts: The table of the texts.
        column: The column of the texts.
        step: The step's displayed name, '' for the score's own.
    """
    items = pending_text_similarity(session.lake, plan, score, texts, column)
    job = ScoreTexts(clip(session.recipe), score.table, plan.scorer(score.table), score.step)
    session.work_rounds(step or score.step, items, job)


@dataclass(frozen=True)
class ScoreTexts:
    """Job: compare the image vectors of one shard with one text each.

    Attributes:
        table: The table to fill; its value column has the same name.
        stage: The step that is named in quarantine rows.
    """

    model: ClassVar[str] = IMAGE_EMBEDDING.model
    unit: ClassVar[str] = "pictures"

    clip: Clip
    table: str
    scorer: str
    stage: str

    def __call__(self, item: WorkItem) -> list[Part]:
        """Score the texts of one item."""
        rows = read_rows(item, ["sha256", "image_vector"], "sha256")
        scores = similarity(to_vectors(rows["image_vector"]), self.clip.embed_texts(item.inputs["texts"]))
        return [self._part(rows["sha256"].to_pylist(), item, scalars(scores))]

    def poisoned(self, item: WorkItem) -> list[Part]:
        """Make rows of NULLs for images whose texts kill their worker: a rule on the score then drops them."""
        return [self._part(list(item.keys), item, [None] * len(item.keys))]

    def _part(self, keys: list[str], item: WorkItem, scores: list[float | None]) -> Part:
        """Make the rows of the scores."""
        table = pa.table(
            {
                "sha256": pa.array(keys, pa.string()),
                "input_digest": pa.array(item.inputs["input_digests"], pa.string()),
                self.table: pa.array(scores, pa.float64()),
            }
        )
        return Part(self.table, table, self.scorer)
