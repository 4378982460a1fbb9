"""Serve pairs of a random sample one by one, to be judged by keys, and log the judgements."""

import getpass
import os
import threading
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qsl

from fastapi import APIRouter, Depends, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write.judgement_log import DrawnSample, Judgement, JudgementLog, Verdict, read_log
from pairmill.flows.api.answer_types import MOST_JUDGED, JudgedSample
from pairmill.flows.browse.asked import Asked
from pairmill.flows.browse.browsed_lake import BrowsedLake
from pairmill.flows.browse.rendering import room_page, waiting_page

VERDICTS = ("match", "mismatch", "unsure")
MOST_BYTES = 20_000  # of a form
Form = TypeVar("Form", bound=BaseModel)


class WantedSample(BaseModel):
    """The form that draws a sample of the images that a rule keeps at a threshold."""

    dataset: str = Field(max_length=200)
    rule: str = Field(max_length=200)
    threshold: float = Field(allow_inf_nan=False)


class GivenVerdict(BaseModel):
    """The form that judges one pair of a sample."""

    position: int = Field(ge=0, lt=MOST_JUDGED)
    verdict: Verdict


def user_name() -> str:
    """Return this user's name; the number of a user without one, as in containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"


def _sent(model: type[Form]) -> Callable[[Request], Awaitable[Form]]:
    """Return a dependency that reads an urlencoded form as ``model``: FastAPI's own forms need a further package.

    The dependency raises RequestValidationError for a field that is not valid, PairmillError for a form of over
    MOST_BYTES.
    """

    async def read(request: Request) -> Form:
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > MOST_BYTES:
                raise PairmillError("this form is too long; shorten its fields.")
        try:
            return model.model_validate(dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True)))
        except ValidationError as error:
            raise RequestValidationError(error.errors()) from error

    return read


def routes(opened: BrowsedLake) -> APIRouter:
    """Return the routes of judging."""
    router, judging = APIRouter(), Judging(opened)

    @router.get("/judge")
    def begin(dataset: str = "") -> Response:
        """Show the samples so far, and a form to draw another."""
        version = opened.dataset_or_newest(dataset)
        if version is None:
            message = "No dataset is published here; a run makes one."
            return room_page(opened, "judge", None, "error.html.j2", title="Nothing to judge yet", message=message)
        if opened.gallery(str(version)) is None:
            return waiting_page(opened, "judge", Asked.model_validate({"dataset": str(version)}))
        with opened.lake.judging(str(version)) as judging_of:
            rules = judging_of.rules()
        samples = [each for each in opened.lake.judged_samples() if each.sample.dataset == version.name]
        values = {"rules": rules, "samples": samples, "faults": read_log(opened.lake.lake).faults}
        return room_page(opened, "judge", version, "judge.html.j2", **values)

    @router.post("/judge")
    def draw(wanted: Annotated[WantedSample, Depends(_sent(WantedSample))]) -> Response:
        """Draw a sample, log it, and lead to its first pair."""
        sample = judging.draw(wanted)
        return RedirectResponse(f"/judge/{sample.sample_id}", 303)

    @router.get("/judge/{sample_id}")
    def show(sample_id: str) -> Response:
        """Show the first pair of a sample that this user has not judged."""
        shown = judging.next_pair(sample_id)
        dataset = "{0.dataset}@{0.version}".format(shown["sample"])
        return room_page(opened, "judge", dataset, "judged_pair.html.j2", **shown)

    @router.post("/judge/{sample_id}")
    def judge(sample_id: str, given: Annotated[GivenVerdict, Depends(_sent(GivenVerdict))]) -> Response:
        """Log the verdict on the pair at ``position``, and lead to the next; 'undone' leads back to that pair."""
        judging.judge(sample_id, given.position, given.verdict)
        return RedirectResponse(f"/judge/{sample_id}", 303)

    return router


class Judging:
    """The samples of one lake, as this user judges them. Images of a sample are drawn once for each process."""

    def __init__(self, opened: BrowsedLake) -> None:
        self._opened = opened
        self._log = JudgementLog(opened.lake.lake)
        self._images: dict[str, list[dict[str, Any]]] = {}
        self._lock = threading.Lock()
        self._judge = user_name()

    def draw(self, wanted: WantedSample) -> DrawnSample:
        """Draw and log a sample. Raise PairmillError if there is no such dataset or rule."""
        version = self._opened.dataset(wanted.dataset)
        if version is None:
            raise PairmillError("choose a dataset version to judge.")
        self._wait_for(str(version))
        with self._opened.lake.judging(str(version)) as judging:
            sample = judging.draw(wanted.rule, wanted.threshold)
        self._log.append(sample)  # one log a session has its samples and verdicts in order
        return sample

    def next_pair(self, sample_id: str) -> dict[str, Any]:
        """Return what the page of the first pair that is not judged shows; ``image`` is None when all are."""
        judged = self._sample(sample_id)
        sample, own = judged.sample, self._own(judged)
        images = self._drawn(sample)
        position = next((n for n in range(len(images)) if n not in own), None)
        last = max(own.values(), key=lambda each: each.at).position if own else None
        counts = [(verdict, judged.verdicts[verdict]) for verdict in VERDICTS]
        shown = {"sample": sample, "counts": counts, "last": last, "position": position, "drawn": len(images)}
        if position is None:
            return {**shown, "image": None, "kind": "", "text": ""}
        kind, text = self._text(sample, images[position]["image_id"])
        return {**shown, "image": images[position], "kind": kind, "text": text}

    def judge(self, sample_id: str, position: int, verdict: Verdict) -> None:
        """Log a verdict on the pair at ``position``. Raise PairmillError if there is none, or none to undo."""
        judged = self._sample(sample_id)
        images = self._drawn(judged.sample)
        if position >= len(images) or (verdict == "undone" and position not in self._own(judged)):
            raise PairmillError("there is no such pair in this sample; open the sample again.")
        image = images[position]
        _, text = self._text(judged.sample, image["image_id"])
        self._log.append(Judgement(
            sample_id=sample_id, position=position, image_id=image["image_id"], text=text, value=image["value"],
            verdict=verdict, judge=self._judge,
        ))  # fmt: skip

    def _own(self, judged: JudgedSample) -> dict[int, Judgement]:
        return {each.position: each for each in judged.judgements if each.judge == self._judge}

    def _sample(self, sample_id: str) -> JudgedSample:
        found = next((each for each in self._opened.lake.judged_samples() if each.sample.sample_id == sample_id), None)
        if found is None:
            raise HTTPException(404)
        return found

    def _drawn(self, sample: DrawnSample) -> list[dict[str, Any]]:
        """Return the sample's images. Raise PairmillError if the version is another than it was drawn from."""
        dataset = f"{sample.dataset}@{sample.version}"
        version = self._opened.dataset(dataset)
        if version is None or version.content_digest != sample.content_digest:
            raise PairmillError(f"{dataset} has changed since this sample was drawn; draw another.")
        with self._lock:
            if sample.sample_id not in self._images:
                self._wait_for(dataset)
                with self._opened.lake.judging(dataset) as judging:
                    self._images[sample.sample_id] = judging.images(sample)
            return self._images[sample.sample_id]

    def _text(self, sample: DrawnSample, image_id: str) -> tuple[str, str]:
        with self._opened.lake.judging(f"{sample.dataset}@{sample.version}") as judging:
            return judging.text(sample, image_id)

    def _wait_for(self, dataset: str) -> None:
        """Raise PairmillError while the gallery of a version is being built."""
        if self._opened.gallery(dataset) is None:
            raise PairmillError("the lake is being read; try again in a minute.")
