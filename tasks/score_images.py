"""Score pictures: one decode feeds every score that a picture still lacks."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pyarrow as pa

from catalog.pending.item import WorkItem
from catalog.pending.worklist import pending_images
from catalog.recipe.plan import Plan, Stage
from ops.fault import Fault
from ops.image.decode import Decode
from ops.image.image_quality import ImageQuality
from ops.image.luma import with_luma
from ops.image.phash import PerceptualHash
from ops.models.clip import Clip
from tasks.run.identity import clip
from tasks.run.payloads import payloads
from tasks.run.rows import quarantine, scalars, to_blobs
from tasks.run.session import Session
from tasks.run.stage import Part

SCORES = ("sharpness", "brightness", "colourfulness", "image_entropy", "phash", "image_vector")
PIXEL_TABLES = ("image_quality", "image_hash")


def score_images(session: Session) -> None:
    """Pixel scores and CLIP vectors for the pictures that pass the rules so far.

    CLIP joins the pixel pass unless the recipe has a rule on a pixel score: then it is a pass of its own over the
    survivors, because a vector costs a hundred times a sharpness.
    """
    job = image_job(session)
    passes = [(PIXEL_TABLES, Stage.PIXELS), (("image_embedding",), Stage.CLIP)]
    if not has_pixel_rule(session.plan):
        passes = [((*PIXEL_TABLES, "image_embedding"), Stage.PIXELS)]
    for tables, stage in passes:
        session.work_rounds("score images", pending_images(session.lake, session.plan, tables, stage), job)


def has_pixel_rule(plan: Plan) -> bool:
    return any(check.stage == Stage.PIXELS and check.name != "readable" for check in plan.image_checks)


def image_job(session: Session) -> "ScoreImages":
    recipe = session.recipe
    return ScoreImages(
        decode=Decode(side=recipe.decoding.side, mode=recipe.decoding.mode, max_pixels=recipe.ingest.max_pixels),
        clip=clip(recipe),
        scorers={table: session.plan.scorer(table) for table in (*PIXEL_TABLES, "image_embedding")},
    )


@dataclass(frozen=True)
class ScoreImages:
    """A job: decode each picture once and run the pending scorers on the pixels.

    A picture that does not decode, or is no longer where the lake refers to, gets rows of NULLs (so it is not tried
    again) and a quarantine row.
    """

    stage: ClassVar[str] = "score images"

    decode: Decode
    clip: Clip
    scorers: dict[str, str]
    quality: ImageQuality = field(default_factory=ImageQuality)
    phash: PerceptualHash = field(default_factory=PerceptualHash)

    def __call__(self, item: WorkItem) -> list[Part]:
        keys: list[str] = []
        columns: list[dict] = []
        bad: list[Fault] = []
        for shas, datas in payloads(item):
            decoded = [data if isinstance(data, Fault) else self.decode(data) for data in datas]
            bad += [pixels.about(sha) for sha, pixels in zip(shas, decoded, strict=True) if isinstance(pixels, Fault)]
            keys += shas
            columns.append(self._scored(decoded, item.tables))
        scores = {name: [value for part in columns for value in part[name]] for name in (columns[0] if columns else ())}
        parts = [self._part(table, keys, scores) for table in item.tables]
        if bad:
            names = [fault.item for fault in bad]
            parts.append(Part("quarantine", quarantine(names, [""] * len(bad), "score images", bad)))
        return parts

    def poisoned(self, item: WorkItem) -> list[Part]:
        """Rows of NULLs for pictures that kill their worker, so that they are not tried again."""
        nothing: dict[str, list] = {name: [None] * len(item.keys) for name in SCORES}
        return [self._part(table, list(item.keys), nothing) for table in item.tables]

    def _scored(self, decoded: list, tables: tuple[str, ...]) -> dict[str, list]:
        good = [n for n, pixels in enumerate(decoded) if not isinstance(pixels, Fault)]
        batch = {"pixels": [decoded[n] for n in good]}
        if not {"image_quality", "image_hash"}.isdisjoint(tables):
            batch = with_luma(batch)
        scores: dict[str, list] = {}
        if "image_quality" in tables:
            result = self.quality(batch)
            for name in ("sharpness", "brightness", "colourfulness", "image_entropy"):
                scores[name] = _spread(scalars(result[name]), good, len(decoded))
        if "image_hash" in tables:
            hashes = self.phash(batch)["phash"]
            scores["phash"] = _spread([int(value) for value in hashes], good, len(decoded))
        if "image_embedding" in tables:
            vectors = self.clip.embed_images(batch["pixels"]) if good else np.empty((0, 1), np.float32)
            scores["image_vector"] = _spread(to_blobs(vectors).to_pylist(), good, len(decoded))
        return scores

    def _part(self, table: str, keys: list[str], scores: dict[str, list]) -> Part:
        rows: dict = {"sha256": pa.array(keys, pa.string())}
        if table == "image_hash":
            rows["phash"] = pa.array(scores.get("phash", []), pa.uint64())
        elif table == "image_embedding":
            rows["image_vector"] = pa.array(scores.get("image_vector", []), pa.binary())
        else:
            names = ("sharpness", "brightness", "colourfulness", "image_entropy")
            rows |= {name: pa.array(scores.get(name, []), pa.float64()) for name in names}
        return Part(table, pa.table(rows), self.scorers[table])


def _spread(values: list, at: list[int], n: int) -> list:
    """``values`` at the places ``at`` of a list of ``n``, None elsewhere."""
    spread: list = [None] * n
    for place, value in zip(at, values, strict=True):
        spread[place] = value
    return spread
