"""Score sentences: flags and counts, a parser, a language model, CLIP, each over what passes the rules so far."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.worklist import pending_sentences
from pairmill.catalog.terms.score import RUN_AT
from pairmill.tasks.measure.calibrate import calibrate
from pairmill.tasks.measure.score_vectors import score_vectors
from pairmill.tasks.run import scored
from pairmill.tasks.run.identity import Bound, bound
from pairmill.tasks.run.model_job import Piece, one_by_one
from pairmill.tasks.run.partition import Part
from pairmill.tasks.run.rows import read_rows
from pairmill.tasks.run.scored import Scored, model_of, null_parts, score_parts
from pairmill.tasks.run.session import Session


def score_sentences(session: Session) -> None:
    """Score in a pass a stage, each over what passes the rules so far: these drop most web sentences after the first,
    which costs a thousandth of a model's; a language model reads what a parser's rules leave, CLIP what its own do."""
    scorers = [each for each in bound(session.plan, "sentence") if not each.score.vector_table]
    for stage in RUN_AT["sentence"]:
        job = ScoreSentences(tuple(each for each in scorers if each.score.stage == stage))
        if not job.scorers:  # nobody asks for a parse, or for a language model's score
            continue
        calibrate(session, "sentence", stage)
        tables = [each.score.table for each in job.scorers]
        pending = pending_sentences(session.lake, session.plan, tables, stage)
        session.work_rounds(job.stage, pending, job)
    score_vectors(session, "sentence")


# Sentences that a worker holds at once: of like length, they fill a model's batches.
PIECE = 16_384


@dataclass(frozen=True)
class ScoreSentences:
    """A model job: score sentence texts of one shard, to the tables that lack them.

    A sentence that a model has no room for gets NULLs (so it is not tried again) and a quarantine row.
    """

    item_rows: ClassVar[int] = PIECE

    scorers: tuple[Bound, ...]

    @property
    def stage(self) -> str:
        return self.scorers[0].score.step

    @property
    def model(self) -> str:
        return model_of(self.scorers)

    def __call__(self, item: WorkItem) -> Iterable[Part]:
        return one_by_one(self, item)

    def load(self) -> None:
        scored.load(self.scorers)

    def pieces(self, item: WorkItem, rows: int = 0) -> Iterator[Piece]:
        table = read_rows(item, ["content", "text"], "content")
        for batch in table.to_batches(rows or PIECE):
            keys = batch["content"].to_pylist()
            yield Piece(tuple(keys), ({"text": batch["text"].to_pylist()}, item.tables))

    def prepare(self, piece: Piece) -> Scored:
        batch, tables = piece.data
        return scored.prepare(self._wanted(tables), batch, piece.keys, list(range(len(piece.keys))), [])

    def infer(self, ready: Scored) -> Scored:
        return scored.infer(ready)

    def fetch(self, running: Scored) -> Scored:
        return scored.fetch(running)

    def parts(self, item: WorkItem, found: list[Scored]) -> Iterable[Part]:
        return score_parts(self._wanted(item.tables), found, self.stage)

    def poisoned(self, item: WorkItem) -> list[Part]:
        return null_parts(self._wanted(item.tables), item.keys)

    def _wanted(self, tables: tuple[str, ...]) -> list[Bound]:
        return [each for each in self.scorers if each.score.table in tables]
