"""Create the Prefect artifacts of a run: its progress, its numbers, and links to its report and gallery.

No picture, text or address of the web is copied into Prefect's database, so a takedown has nothing to remove there.
"""

import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast
from urllib.parse import quote, urlsplit
from uuid import UUID

from httpx import HTTPError
from prefect import artifacts
from prefect.exceptions import PrefectException
from prefect.logging import get_logger

from pairmill.catalog.terms.controls import visible
from pairmill.catalog.terms.demo_weights import MARK
from pairmill.flows.run.outcome import Outcome
from pairmill.flows.run.progress_text import progress_text
from pairmill.tasks.run.place.progress import Progress

if TYPE_CHECKING:
    from pairmill.flows.run.approval import CaptionOutcome

BROWSE_URL = "PAIRMILL_BROWSE_URL"
EVERY_SECONDS = 2.0  # an update is a request that takes some 20 ms


@dataclass
class _Bar:
    """A step's progress artifact with its description, and its start, last update and percentage."""

    artifact: UUID
    said: str
    began: float
    shown_at: float = 0.0
    percent: float = 0.0


class ProgressArtifacts:
    """A session's ``progress`` callback: one progress artifact per step, updated every EVERY_SECONDS.

    An update that the server rejects is logged and skipped, so that no work is lost.
    """

    def __init__(self) -> None:
        self._bars: dict[str, _Bar] = {}

    def __call__(self, progress: Progress) -> None:
        """Create or update the progress artifact of a step."""
        with unless_refused(f"{progress.step}: its progress"):
            self._update(progress)

    def waiting(self, step: str, text: str) -> None:
        """Show in a step's artifact what the step waits for; '' removes the text."""
        with unless_refused(f"{step}: {text or 'that it goes on'}"):
            if bar := self._bars.get(step):
                said = f"{bar.said}; {text}" if text else bar.said
                artifacts.update_progress_artifact(artifact_id=bar.artifact, progress=bar.percent, description=said)

    def _update(self, progress: Progress) -> None:
        """Create the step's artifact at its start; update it at most every EVERY_SECONDS, and at the step's end."""
        step, now = progress.step, time.monotonic()
        if step not in self._bars or progress.is_begin:
            said = f"{step}: {progress.total:,} {progress.unit}" if progress.unit else step
            made = cast(UUID, artifacts.create_progress_artifact(0.0, key=_key(step), description=said))
            self._bars[step] = _Bar(made, said, now, now)
        bar = self._bars[step]
        if progress.is_end or now - bar.shown_at >= EVERY_SECONDS:
            bar.percent = 100.0 * progress.done / max(1, progress.total)
            bar.said = f"{step}: {progress_text(progress, now - bar.began)}" if progress.unit else step
            artifacts.update_progress_artifact(artifact_id=bar.artifact, progress=bar.percent, description=bar.said)
            bar.shown_at = now


class RateArtifact:
    """The rate of a captioning run as one progress artifact.

    An update that the server rejects is logged and skipped.
    """

    def __init__(self) -> None:
        self._bar: UUID | None = None

    def __call__(self, text: str, share: float) -> None:
        """Update the artifact with ``text`` and the share of images done, 0 to 1."""
        with unless_refused("the rate"):
            if self._bar is None:
                self._bar = cast(UUID, artifacts.create_progress_artifact(0.0, key="caption-rate", description=text))
            artifacts.update_progress_artifact(artifact_id=self._bar, progress=100.0 * share, description=text)


@contextmanager
def unless_refused(what: str) -> Iterator[None]:
    """Log a warning about ``what`` instead of raising if the server rejects a request in the ``with`` block."""
    try:
        yield
    except (HTTPError, PrefectException) as error:
        get_logger(__name__).warning(f"{what} could not be shown: {error}")


def create_first_captions(found: "CaptionOutcome") -> None:
    """Create an artifact on the first captions: their number by status, and the path of their HTML strip."""
    by = f" They are by {MARK}: the mechanics, not quality." if found.is_demo else ""
    lines = ["# The first captions", f"{found.said}; {found.left:,} pictures are left.{by}"]
    lines += [f"Beside their pictures: {code(found.strip)}"] if found.strip else []
    said = f"The first captions: {found.said}"
    artifacts.create_markdown_artifact("\n".join(lines), key="first-captions", description=said)


def create_artifacts(found: Outcome) -> None:
    """Create the artifacts of a run's outcome. Their keys are the dataset's name, so versions form their history.

    One has all that is to be looked at, because Prefect's page shows a run's artifacts in no order.

    They link the report and the gallery if PAIRMILL_BROWSE_URL names a running `pairmill browse`. The report's path is
    text, because browsers refuse links to files.
    """
    name = str(found.dataset)
    rows = [(step.kind, step.rule, step.n_in, step.n_dropped) for step in found.funnel]
    said = f"Gallery, report and pairs of {name}"
    artifacts.create_markdown_artifact(_markdown(found), key=_key(f"pairs {found.dataset.name}"), description=said)
    create_funnel(found.dataset.name, rows, f"What each rule dropped in {name}")


def create_funnel(dataset: str, rows: Sequence[tuple], said: str) -> None:
    """Create a table artifact of a dataset's funnel from rows (kind, rule, number in, number dropped)."""
    shown = [
        {"kind": kind, "rule": rule, "in": n_in, "dropped": n_dropped, "kept": n_in - n_dropped}
        for kind, rule, n_in, n_dropped in rows
    ]
    artifacts.create_table_artifact(shown, key=_key(f"funnel {dataset}"), description=said)


def _markdown(found: Outcome) -> str:
    """Format the number of pairs, with SQL, report and links to look at them, as Markdown."""
    name = str(found.dataset)
    by = f", by {MARK}" if found.demo_weights else ""
    lines = [f"# {name}", f"{found.dataset.n_pairs:,} pairs{by}.", ""]
    if link := browse_link("gallery", name):
        lines += [f"- [Gallery: pictures, kept and dropped by each rule]({link})", f"- [Pairs]({link}&fate=kept)"]
        lines += [f"- [Report]({browse_link('report', name)})"]
    lines += [f"- Report: {code(found.report)}"] if found.report else []
    lines += [f"- SQL: {code(found.sql)}"]
    return "\n".join(lines)


def browse_link(page: str, dataset: str = "") -> str:
    """Return the URL of ``page`` in the `pairmill browse` at PAIRMILL_BROWSE_URL; '' if the variable is not set.

    A token in that address is left out: whoever opened the browser by its token once has its cookie, and Prefect's
    database is no place for a secret.
    """
    given = urlsplit(os.environ.get(BROWSE_URL, ""))
    if not given.geturl():
        return ""
    if given.scheme not in ("http", "https") or not given.hostname:
        get_logger(__name__).warning(f"{BROWSE_URL} is no http address, so that nothing is linked.")
        return ""
    host = given.netloc.rpartition("@")[2]
    return f"{given.scheme}://{host}{given.path.rstrip('/')}/{page}?dataset={quote(dataset, safe='')}"


def plain(text: str) -> str:
    """Escape ``text`` for Markdown, so that neither Markdown nor HTML in it takes effect.

    All ASCII punctuation is escaped, including ':' and '.' of an address: some interfaces turn an address into a link.
    """
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", visible(" ".join(text.split())))


def code(text: str) -> str:
    """Format ``text`` as Markdown code, fenced by more backticks than its longest run of them."""
    text = visible(" ".join(text.split()))
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence} {text} {fence}" if "`" in text else f"{fence}{text}{fence}"


def _key(text: str) -> str:
    """Convert a text to an artifact key: lower-case letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
