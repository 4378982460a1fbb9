"""Score vectors: run small heads on stored CLIP vectors, without reading images or sentences again."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.worklist import pending_vectors
from pairmill.tasks.run.items.partition import Part
from pairmill.tasks.run.items.rows import measured, read_rows, score_rows, to_vectors
from pairmill.tasks.run.items.scored import run_op
from pairmill.tasks.run.place.identity import Bound, bound
from pairmill.tasks.run.session import Session


def score_vectors(session: Session, kind: str) -> None:
    """Compute the scores of ``kind`` ('image', 'sentence') whose op reads vectors, one pass over small files each."""
    for each in bound(session.plan, kind):
        if each.score.vector_table:
            pending = pending_vectors(session.lake, session.plan, each.score)
            session.work_rounds(each.score.name.replace("_", " "), pending, ScoreVectors(each))


@dataclass(frozen=True)
class ScoreVectors:
    """Job: score the vectors of one shard into one table; NULLs where there is no vector."""

    scorer: Bound

    @property
    def model(self) -> str:
        """The recipe's name of the model that the op loads, '' without one; the job runs where that model does."""
        return self.scorer.score.model

    @property
    def unit(self) -> str:
        """What is scored, in the plural."""
        return "pictures" if self.scorer.score.of == "image" else "sentences"

    def __call__(self, item: WorkItem) -> list[Part]:
        """Score the vectors of one item."""
        score = self.scorer.score
        (column,) = score.reads
        rows = read_rows(item, [score.key, column], score.key)
        there = np.flatnonzero(rows[column].is_valid().to_numpy())
        vectors = to_vectors(rows[column].take(pa.array(there)))
        found = measured(score, run_op(self.scorer, {column: vectors}))
        values = {name: [None] * rows.num_rows for name in found}
        for name, numbers in found.items():
            for place, value in zip(there.tolist(), numbers, strict=True):
                values[name][place] = value
        return [Part(score.table, score_rows(score, rows[score.key].to_pylist(), values), self.scorer.digest)]
