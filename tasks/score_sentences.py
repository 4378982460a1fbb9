"""Score sentences: flags and counts, a parser, a language model, CLIP, each over what passes the rules so far."""

from dataclasses import dataclass

from catalog.pending.item import WorkItem
from catalog.pending.worklist import pending_sentences
from catalog.terms.score import RUN_AT
from tasks.calibrate import calibrate
from tasks.run.identity import Bound, bound
from tasks.run.rows import measured, read_rows, score_rows
from tasks.run.session import Session
from tasks.run.stage import Part
from tasks.score_vectors import score_vectors


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
        session.work_rounds(job.scorers[0].score.step, pending, job)
    score_vectors(session, "sentence")


@dataclass(frozen=True)
class ScoreSentences:
    """A job: score sentence texts of one shard, to the tables that lack them."""

    scorers: tuple[Bound, ...]

    def __call__(self, item: WorkItem) -> list[Part]:
        rows = read_rows(item, ["content", "text"], "content")
        keys, batch = rows["content"].to_pylist(), {"text": rows["text"].to_pylist()}
        return [
            Part(each.score.table, score_rows(each.score, keys, measured(each.score, each.op(batch))), each.digest)
            for each in self.scorers
            if each.score.table in item.tables
        ]
