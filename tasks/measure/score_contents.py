"""Score images, each decoded once for every score that it lacks, and sentences; choose pictures' licence and credit."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa

from pairmill.catalog.pending import fetches
from pairmill.catalog.pending.changed_inputs import pending_rights
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.worklist import pending_images, pending_sentences
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.terms.score import RUN_AT, Stage
from pairmill.catalog.terms.scores import RIGHTS
from pairmill.catalog.write.scorer import Scorer
from pairmill.ops import licence
from pairmill.ops.fault import Fault
from pairmill.ops.image.decode import Decode
from pairmill.ops.image.image_quality import with_luma
from pairmill.ops.models.model_digest import image_size
from pairmill.tasks.measure.calibrate import calibrate
from pairmill.tasks.measure.scoring_job import Scored, ScoringJob, batch_size, prepare_scores, score_vectors
from pairmill.tasks.run.items.model_job import Piece
from pairmill.tasks.run.items.partition import Part
from pairmill.tasks.run.items.payloads import batches
from pairmill.tasks.run.items.rows import read_rows
from pairmill.tasks.run.place.identity import Bound, bound, decoder
from pairmill.tasks.run.session import Session


def score_images(session: Session) -> None:
    """Compute pixel scores and CLIP vectors of the images that pass the rules so far, then scores of the vectors.

    Models run in the same pass as the pixel scores unless the recipe has a rule on a pixel score. With such a rule they
    run in a second pass over the images that pass it: a vector costs a hundred times as much as a sharpness.
    """
    job = image_job(session)
    if not job.scorers:
        return
    clip, side = session.recipe.models.get("clip", ""), session.recipe.decoding.side
    if clip and (size := image_size(clip)) > side:
        session.note(
            f"pictures are decoded to a shorter side of {side} pixels and enlarged for the model '{clip}', which takes "
            f"{size}: set decoding.side to {size}. All pictures are scored again then."
        )
    for stage, tables in passes(session.plan, job.scorers):
        calibrate(session, stage, ["image"])
        of_pass = replace(job, scorers=tuple(each for each in job.scorers if each.score.table in tables))
        session.work_rounds(job.stage, pending_images(session.lake, session.plan, tables, stage), of_pass)
        if RIGHTS.made_from[0] in tables:
            credit(session)
    score_vectors(session, "image")


def passes(plan: Plan, scorers: tuple[Bound, ...]) -> list[tuple[Stage, tuple[str, ...]]]:
    """List the passes over the images as (stage, tables to fill): two if a rule reads a pixel score, else one."""
    tables = {stage: tuple(each.score.table for each in scorers if each.score.stage == stage) for stage in Stage}
    if any(check.stage == Stage.PIXELS and check.name != "readable" for check in plan.image_checks):
        return [(stage, tables[stage]) for stage in (Stage.PIXELS, Stage.CLIP)]
    return [(Stage.PIXELS, tables[Stage.PIXELS] + tables[Stage.CLIP])]


def image_job(session: Session) -> "ScoreImages":
    """Return the job that computes all scores of the plan from pixels."""
    scorers = tuple(each for each in bound(session.plan, "image") if not each.score.vector_table)
    return ScoreImages(scorers, decoder(session.recipe))


@dataclass(frozen=True)
class ScoreImages(ScoringJob):
    """Model job: decode each image once and run all pending scorers on its pixels.

    Only a model's inference runs on the device, all else on CPUs. An image that does not decode, or whose bytes are no
    longer at the place that the lake refers to, gets rows of NULLs (so that it is not pending again) and a quarantine
    row. An image that does not fit a model's memory gets NULLs of that model only.
    """

    unit: ClassVar[str] = "pictures"
    item_rows: ClassVar[int] = 16_384  # 8 s of a GPU at 2,125 images a second (ViT-L-14 on an H200)

    decode: Decode

    @property
    def stage(self) -> str:
        """Name of the step."""
        return "score images"

    def pieces(self, item: WorkItem, rows: int = 0) -> Iterator[Piece]:
        """Yield the bytes of the item's images in batches of ``rows``, 0 for the model's batch size."""
        for shas, datas in batches(item, rows or batch_size(self.wanted(item.tables))):
            yield Piece(tuple(shas), (datas, item.tables))

    def prepare(self, piece: Piece) -> Scored:
        """Decode a batch's images; return the values of scorers without a model, and the models' prepared input."""
        datas, tables = piece.data
        decoded = [data if isinstance(data, Fault) else self.decode(data) for data in datas]
        named = list(zip(piece.keys, decoded, strict=True))
        bad = [pixels.about(sha) for sha, pixels in named if isinstance(pixels, Fault)]
        good = [n for n, pixels in enumerate(decoded) if not isinstance(pixels, Fault)]
        batch: dict[str, Any] = {"pixels": [decoded[n] for n in good], "encoded": [datas[n] for n in good]}
        wanted = self.wanted(tables)
        if any("luma" in each.score.reads for each in wanted):
            batch = with_luma(batch)
        return prepare_scores(wanted, batch, piece.keys, good, bad)


def credit(session: Session) -> None:
    """Compute the rights of pictures whose file or documents state others than before, if the recipe asks for them."""
    if session.plan.computes(RIGHTS.table):
        made_from = tuple(session.plan.scorer(name) for name in RIGHTS.made_from)
        digest = session.use(RIGHTS.table, Scorer(RIGHTS.name, RIGHTS.table, licence.VERSION, {}, "", made_from))
        session.work_rounds(RIGHTS.step, pending_rights(session.lake, session.plan), CreditPictures(digest))


@dataclass(frozen=True)
class CreditPictures:
    """Job: choose licence and credit of the pictures of one shard, into ``rights``. No file is read."""

    unit: ClassVar[str] = "pictures"

    scorer: str

    def __call__(self, item: WorkItem) -> list[Part]:
        """Choose licence and credit of each picture of one item; return them as rows of ``rights``."""
        stated = zip(item.inputs["claims"], item.inputs["documents"], strict=True)
        return [self._part(item, [licence.choose_rights(claims, documents) for claims, documents in stated])]

    def poisoned(self, item: WorkItem) -> list[Part]:
        """Make rows of NULLs for pictures whose statements kill their worker."""
        return [self._part(item, [{} for _ in item.keys])]

    def _part(self, item: WorkItem, rows: list[dict[str, str | None]]) -> Part:
        """Make the rows of the pictures."""
        columns = {"sha256": list(item.keys), "input_digest": item.inputs["input_digests"]}
        columns |= {each.name: [row.get(each.name) for row in rows] for each in RIGHTS.columns}
        return Part(RIGHTS.table, pa.table({k: pa.array(v, pa.string()) for k, v in columns.items()}), self.scorer)


def score_sentences(session: Session) -> None:
    """Score sentences in one pass per stage, each over the sentences that pass the rules so far.

    The rules drop most web sentences after the first pass, which costs a thousandth of a model's. A language model then
    reads the sentences that pass the parser's rules, and CLIP those that pass the language model's rules. While a
    lake's pictures are addresses alone, of which none has come, no pair needs sentences: they stay pending.
    """
    if fetches.awaits_pictures(session.lake) and not session.is_due("ingest", "fetch"):
        return
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
    """Model job: compute the scores that the sentences of one work item lack, by the scorers of one stage.

    A sentence that does not fit a model's memory gets NULLs (so that it is not pending again) and a quarantine row.
    """

    item_rows: ClassVar[int] = PIECE
    unit: ClassVar[str] = "sentences"

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
