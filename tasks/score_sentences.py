"""Score sentences: flags and counts first, a CLIP text vector only for what passes the rules on them."""

from dataclasses import dataclass, field

import pyarrow as pa

from catalog.pending.item import WorkItem
from catalog.pending.worklist import pending_sentences
from catalog.recipe.plan import Stage
from ops.models.clip import Clip
from ops.text.sentence_quality import SentenceQuality
from tasks.run.identity import clip
from tasks.run.rows import read_rows, scalars, to_blobs
from tasks.run.session import Session
from tasks.run.stage import Part


def score_sentences(session: Session) -> None:
    """Two passes, because most sentences of the web fall at the first, which costs a thousandth of the second."""
    plan = session.plan
    quality = pending_sentences(session.lake, plan, ("sentence_quality",), Stage.PIXELS)
    session.work_rounds("score sentences", quality, ScoreSentences(plan.scorer("sentence_quality")))
    vectors = pending_sentences(session.lake, plan, ("sentence_embedding",), Stage.CLIP)
    job = EmbedSentences(clip(session.recipe), plan.scorer("sentence_embedding"))
    session.work_rounds("embed sentences", vectors, job)


@dataclass(frozen=True)
class ScoreSentences:
    """A job: sentence texts of one shard to ``sentence_quality``."""

    scorer: str
    quality: SentenceQuality = field(default_factory=SentenceQuality)

    def __call__(self, item: WorkItem) -> list[Part]:
        rows = read_rows(item, ["content", "text"], "content")
        scores = self.quality({"text": rows["text"].to_pylist()})
        columns = {
            name: list(scores[name]) for name in ("n_words", "has_url", "has_emoji", "is_boilerplate", "language")
        }
        table = pa.table({"content": rows["content"], **columns, "text_entropy": scalars(scores["text_entropy"])})
        return [Part("sentence_quality", table, self.scorer)]


@dataclass(frozen=True)
class EmbedSentences:
    """A job: sentence texts of one shard to ``sentence_embedding``."""

    clip: Clip
    scorer: str

    def __call__(self, item: WorkItem) -> list[Part]:
        rows = read_rows(item, ["content", "text"], "content")
        vectors = self.clip.embed_texts(rows["text"].to_pylist())
        table = pa.table({"content": rows["content"], "sentence_vector": to_blobs(vectors)})
        return [Part("sentence_embedding", table, self.scorer)]
