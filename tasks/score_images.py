"""Score pictures: one decode feeds every score that a picture still lacks."""

from dataclasses import dataclass
from typing import Any, ClassVar

from catalog.pending.item import WorkItem
from catalog.pending.worklist import pending_images
from catalog.recipe.plan import Plan
from catalog.terms.score import Stage
from ops.fault import Fault
from ops.image.decode import Decode
from ops.image.luma import with_luma
from ops.models.model_digest import image_size
from tasks.calibrate import calibrate
from tasks.run.identity import Bound, bound, decoder
from tasks.run.payloads import payloads
from tasks.run.rows import measured, quarantine, score_rows
from tasks.run.session import Session
from tasks.run.stage import Part
from tasks.score_vectors import score_vectors


def score_images(session: Session) -> None:
    """Compute pixel scores and CLIP vectors of the pictures that pass the rules so far, then scores from the vectors.

    Models join the pixel pass unless the recipe has a rule on a pixel score: then they are a pass of their own over
    the survivors, because a vector costs a hundred times a sharpness.
    """
    job = image_job(session)
    clip, side = session.recipe.models["clip"], session.recipe.decoding.side
    if (size := image_size(clip)) > side:
        session.note(
            f"pictures are decoded to a shorter side of {side} pixels and enlarged for the model '{clip}', which takes "
            f"{size}: set decoding.side to {size}. All pictures are scored again then."
        )
    for stage, tables in passes(session.plan, job.scorers):
        calibrate(session, "image", stage)
        session.work_rounds(job.stage, pending_images(session.lake, session.plan, tables, stage), job)
    score_vectors(session, "image")


def passes(plan: Plan, scorers: tuple[Bound, ...]) -> list[tuple[Stage, tuple[str, ...]]]:
    """List (stage, tables) of each pass over the pixels."""
    tables = {stage: tuple(each.score.table for each in scorers if each.score.stage == stage) for stage in Stage}
    if has_pixel_rule(plan):
        return [(stage, tables[stage]) for stage in (Stage.PIXELS, Stage.CLIP)]
    return [(Stage.PIXELS, tables[Stage.PIXELS] + tables[Stage.CLIP])]


def has_pixel_rule(plan: Plan) -> bool:
    """Tell whether a rule of the recipe reads a pixel score."""
    return any(check.stage == Stage.PIXELS and check.name != "readable" for check in plan.image_checks)


def image_job(session: Session) -> "ScoreImages":
    """Make the job with every score of the plan that is computed from pixels."""
    scorers = tuple(each for each in bound(session.plan, "image") if not each.score.vector_table)
    return ScoreImages(decoder(session.recipe), scorers)


@dataclass(frozen=True)
class ScoreImages:
    """A job: decode each picture once and run the pending scorers on the pixels.

    A picture that does not decode, or is no longer where the lake refers to, gets rows of NULLs (so it is not tried
    again) and a quarantine row.
    """

    stage: ClassVar[str] = "score images"

    decode: Decode
    scorers: tuple[Bound, ...]

    def __call__(self, item: WorkItem) -> list[Part]:
        keys: list[str] = []
        values: dict[str, dict[str, list]] = {each.score.table: {} for each in self._wanted(item)}
        bad: list[Fault] = []
        for shas, datas in payloads(item):
            decoded = [data if isinstance(data, Fault) else self.decode(data) for data in datas]
            bad += [pixels.about(sha) for sha, pixels in zip(shas, decoded, strict=True) if isinstance(pixels, Fault)]
            keys += shas
            self._score(item, decoded, values)
        parts = [self._part(each, keys, values[each.score.table]) for each in self._wanted(item)]
        if bad:
            names = [fault.item for fault in bad]
            parts.append(Part("quarantine", quarantine(names, [""] * len(bad), self.stage, bad)))
        return parts

    def poisoned(self, item: WorkItem) -> list[Part]:
        """Make rows of NULLs for pictures that kill their worker, so that they are not tried again."""
        return [self._part(each, list(item.keys), {}) for each in self._wanted(item)]

    def _wanted(self, item: WorkItem) -> list[Bound]:
        return [each for each in self.scorers if each.score.table in item.tables]

    def _score(self, item: WorkItem, decoded: list[Any], values: dict[str, dict[str, list]]) -> None:
        """Append to ``values`` each pending score of the decoded pictures, None for those that are faults."""
        good = [n for n, pixels in enumerate(decoded) if not isinstance(pixels, Fault)]
        batch: dict[str, Any] = {"pixels": [decoded[n] for n in good]}
        wanted = self._wanted(item)
        if any("luma" in each.score.reads for each in wanted):
            batch = with_luma(batch)
        for each in wanted:
            for name, found in measured(each.score, each.op(batch)).items():
                values[each.score.table].setdefault(name, []).extend(_spread(found, good, len(decoded)))

    def _part(self, each: Bound, keys: list[str], values: dict[str, list]) -> Part:
        return Part(each.score.table, score_rows(each.score, keys, values), each.digest)


def _spread(values: list, at: list[int], n: int) -> list:
    """Put ``values`` at the places ``at`` of a list of ``n``, None elsewhere."""
    spread: list = [None] * n
    for place, value in zip(at, values, strict=True):
        spread[place] = value
    return spread
