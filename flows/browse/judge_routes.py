"""Serve pairs of a random sample one by one for judging by keyboard, and log the judgements."""

import threading
from contextlib import AbstractContextManager
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write.judgement_log import DrawnSample, Judgement, JudgementLog, Verdict, read_log
from pairmill.flows.api.answer_types import MOST_JUDGED, JudgedSample, VersionJudging
from pairmill.flows.api.picture_acts import user_name
from pairmill.flows.browse.asked import Asked, sent_form
from pairmill.flows.browse.browsed_lake import BrowsedLake
from pairmill.flows.browse.rendering import room_page, unpublished_page, waiting_page

RECENT = 8  # judged pairs that stay in sight
VERDICTS = ("match", "mismatch", "unsure")


class WantedSample(BaseModel):
    """Fields of the form that draws a sample of the images that a rule keeps at a threshold."""

    dataset: str = Field(max_length=200)
    rule: str = Field(max_length=200)
    threshold: float = Field(allow_inf_nan=False)


class GivenVerdict(BaseModel):
    """Fields of the form that judges one pair of a sample, by its position in the sample."""

    position: int = Field(ge=0, lt=MOST_JUDGED)
    verdict: Verdict


def routes(opened: BrowsedLake) -> APIRouter:
    """Build the router for judging samples, which logs the judgements under this user's name."""
    router, user, lock = APIRouter(), user_name(), threading.Lock()
    log = JudgementLog(opened.lake.lake)  # one for all requests has samples and verdicts in order
    drawn: dict[str, list[dict[str, Any]]] = {}  # by sample, its images

    def forget() -> None:
        """Forget the images of all samples."""
        with lock:
            drawn.clear()

    opened.forgetting.append(forget)

    def judging(dataset: str) -> AbstractContextManager[VersionJudging]:
        """Return the judging of a version. Raise PairmillError while its gallery is being built."""
        if opened.gallery(dataset) is None:
            raise PairmillError("the lake is being read; try again in a minute.")
        return opened.lake.judging(dataset)

    def find(sample_id: str) -> tuple[JudgedSample, dict[int, Judgement], list[dict[str, Any]]]:
        """Return a sample, this user's judgements of it by position, and its images.

        Raises PairmillError if the version is another than it was drawn from.
        """
        found = next((each for each in opened.lake.judged_samples() if each.sample.sample_id == sample_id), None)
        if found is None:
            raise HTTPException(404)
        dataset = _dataset(found.sample)
        version = opened.dataset(dataset)
        if version is None or version.content_digest != found.sample.content_digest:
            raise PairmillError(f"{dataset} has changed since this sample was drawn; draw another.")
        with lock:
            if (images := drawn.get(sample_id)) is None:
                with judging(dataset) as of_version:
                    images = drawn[sample_id] = of_version.images(found.sample)
        own = {each.position: each for each in found.judgements if each.judge == user}
        return found, own, images

    def text_of(sample: DrawnSample, image: dict[str, Any]) -> tuple[str, str]:
        """Return (kind, text) of the text that is judged with an image."""
        with opened.lake.judging(_dataset(sample)) as of_version:
            return of_version.text(sample, image["image_id"])

    @router.get("/judge")
    def begin(dataset: str = "") -> Response:
        """Show the samples so far, and a form to draw another."""
        version = opened.dataset_or_newest(dataset)
        if version is None:
            return unpublished_page(opened, "judge", "Nothing to judge yet")
        if opened.gallery(str(version)) is None:
            return waiting_page(opened, "judge", Asked.model_validate({"dataset": str(version)}))
        with opened.lake.judging(str(version)) as of_version:
            rules = of_version.rules()
        samples = [each for each in opened.lake.judged_samples() if each.sample.dataset == version.name]
        values = {"rules": rules, "samples": samples, "faults": read_log(opened.lake.lake).faults}
        return room_page(opened, "judge", version, "judge.html.j2", **values)

    @router.post("/judge")
    def draw(wanted: Annotated[WantedSample, Depends(sent_form(WantedSample))]) -> Response:
        """Draw a sample, log it, and lead to its first pair."""
        version = opened.dataset(wanted.dataset)
        if version is None:
            raise PairmillError("choose a dataset version to judge.")
        with judging(str(version)) as of_version:
            sample = of_version.draw(wanted.rule, wanted.threshold)
        log.append(sample)
        return RedirectResponse(f"/judge/{sample.sample_id}", 303)

    @router.get("/judge/{sample_id}")
    def show(sample_id: str) -> Response:
        """Show the first pair of a sample that this user has not judged."""
        judged, own, images = find(sample_id)
        sample = judged.sample
        position = next((n for n in range(len(images)) if n not in own), None)
        newest = sorted(own.values(), key=lambda each: each.at, reverse=True)
        last = newest[0].position if own else None
        recent = [{**images[each.position], "verdict": each.verdict} for each in newest[:RECENT]]
        counts = [(verdict, judged.verdicts[verdict]) for verdict in VERDICTS]
        image = None if position is None else images[position]
        kind, text = text_of(sample, image) if image else ("", "")
        shown = {"sample": sample, "counts": counts, "last": last, "position": position, "drawn": len(images)}
        shown |= {"image": image, "kind": kind, "text": text, "recent": recent}
        return room_page(opened, "judge", _dataset(sample), "judged_pair.html.j2", **shown)

    @router.post("/judge/{sample_id}")
    def judge(sample_id: str, given: Annotated[GivenVerdict, Depends(sent_form(GivenVerdict))]) -> Response:
        """Log the verdict on the pair at ``position``, and lead to the next; 'undone' leads back to that pair."""
        judged, own, images = find(sample_id)
        position, verdict = given.position, given.verdict
        if position >= len(images) or (verdict == "undone" and position not in own):
            raise PairmillError("there is no such pair in this sample; open the sample again.")
        image = images[position]
        _, text = text_of(judged.sample, image)
        log.append(Judgement(
            sample_id=sample_id, position=position, image_id=image["image_id"], text=text, value=image["value"],
            verdict=verdict, judge=user,
        ))  # fmt: skip
        return RedirectResponse(f"/judge/{sample_id}", 303)

    return router


def _dataset(sample: DrawnSample) -> str:
    return f"{sample.dataset}@{sample.version}"
