"""Score sentences stage by stage (flags, parser, language model, CLIP), only those that pass the rules so far."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.worklist import pending_sentences
from pairmill.catalog.terms.score import RUN_AT
from pairmill.tasks.measure.calibrate import calibrate
from pairmill.tasks.measure.scoring_job import Scored, ScoringJob, prepare_scores, score_vectors
from pairmill.tasks.run.items.model_job import Piece
from pairmill.tasks.run.items.rows import read_rows
from pairmill.tasks.run.place.identity import bound
from pairmill.tasks.run.session import Session


def score_sentences(session: Session) -> None:
    """Score sentences in one pass per stage, each over the sentences that pass the rules so far.

    The rules drop most web sentences after the first pass, which costs a thousandth of a model's. A language model then
    reads the sentences that pass the parser's rules, and CLIP those that pass the language model's rules.
    """
    scorers = [each for each in bound(session.plan, "sentence") if not each.score.vector_table]
    for stage in RUN_AT["sentence"]:
        job = ScoreSentences(tuple(each for each in scorers if each.score.stage == stage))
        if not job.scorers:  # the recipe uses no score of this stage (parser, language model)
            continue
        calibrate(session, stage, ["sentence"])
        tables = [each.score.table for each in job.scorers]
        pending = pending_sentences(session.lake, session.plan, tables, stage)
        session.work_rounds(job.stage, pending, job)
    score_vectors(session, "sentence")


# Sentences in a worker's memory at once: enough of similar length to fill a model's batches.
PIECE = 16_384


@dataclass(frozen=True)
class ScoreSentences(ScoringJob):
    """Model job: compute the pending scores of one shard's sentences.

    A sentence that does not fit a model's memory gets NULLs (so that it is not pending again) and a quarantine row.
    """

    item_rows: ClassVar[int] = PIECE
    unit: ClassVar[str] = "sentences"

    @property
    def stage(self) -> str:
        """Name of the step."""
        return self.scorers[0].score.step

    def pieces(self, item: WorkItem, rows: int = 0) -> Iterator[Piece]:
        """Yield the item's texts in batches of ``rows``, 0 for PIECE."""
        table = read_rows(item, ["content", "text"], "content")
        for batch in table.to_batches(rows or PIECE):
            keys = batch["content"].to_pylist()
            yield Piece(tuple(keys), ({"text": batch["text"].to_pylist()}, item.tables))

    def prepare(self, piece: Piece) -> Scored:
        """Return a batch's values of scorers without a model, and the models' prepared input."""
        batch, tables = piece.data
        return prepare_scores(self.wanted(tables), batch, piece.keys, list(range(len(piece.keys))), [])
