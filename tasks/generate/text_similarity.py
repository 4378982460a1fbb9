"""Score by CLIP how well a generated text fits its picture, from the picture's stored vector."""

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
from pairmill.tasks.run.identity import clip
from pairmill.tasks.run.partition import Part
from pairmill.tasks.run.rows import read_rows, scalars, to_vectors
from pairmill.tasks.run.session import Session


def text_similarity_scorer(plan: Plan, score: Score) -> Scorer:
    """Make the identity of ``score``, a similarity made from the plan's texts and vectors."""
    return Scorer(score.name, score.table, VERSION, {}, "", tuple(plan.scorer(name) for name in score.made_from))


def score_texts(session: Session, plan: Plan, score: Score, texts: str, column: str, step: str = "") -> None:
    """Score the wave's texts in ``column`` of the table ``texts``, as ``plan`` reads it: one of something else has a
    low similarity. ``step`` is the name under which it is shown, where it is not the score's own."""
    items = pending_text_similarity(session.lake, plan, score, texts, column)
    job = ScoreTexts(clip(session.recipe), score.table, plan.scorer(score.table), score.step)
    session.work_rounds(step or score.step, items, job)


@dataclass(frozen=True)
class ScoreTexts:
    """A job: compare image vectors of one shard with a text of each, to ``table``, whose column has its name; ``stage``
    is the step that complains of what kills it."""

    model: ClassVar[str] = IMAGE_EMBEDDING.model

    clip: Clip
    table: str
    scorer: str
    stage: str

    def __call__(self, item: WorkItem) -> list[Part]:
        rows = read_rows(item, ["sha256", "image_vector"], "sha256")
        scores = similarity(to_vectors(rows["image_vector"]), self.clip.embed_texts(item.inputs["texts"]))
        return [self._part(rows["sha256"].to_pylist(), item, scalars(scores))]

    def poisoned(self, item: WorkItem) -> list[Part]:
        """Make rows of NULLs for pictures whose texts kill their worker: a rule on them then drops these."""
        return [self._part(list(item.keys), item, [None] * len(item.keys))]

    def _part(self, keys: list[str], item: WorkItem, scores: list[float | None]) -> Part:
        table = pa.table(
            {
                "sha256": pa.array(keys, pa.string()),
                "input_digest": pa.array(item.inputs["input_digests"], pa.string()),
                self.table: pa.array(scores, pa.float64()),
            }
        )
        return Part(self.table, table, self.scorer)
