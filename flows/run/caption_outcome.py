"""Collect the results of a captioning run that are shown: its first captions, an HTML strip, and counts by status."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from pairmill.catalog.lake.opening import mark
from pairmill.catalog.pending.uncaptioned import count_uncaptioned
from pairmill.catalog.queries import captioned
from pairmill.flows.pages.caption_strip import write_strip
from pairmill.flows.run.outcome import reports_folder
from pairmill.tasks.generate.caption_all import FIRST
from pairmill.tasks.run.session import Session


@dataclass(frozen=True)
class CaptionOutcome:
    """The results of a captioning run that are shown.

    Attributes:
        captions: The first captions, rows of `first_captions`.
        statuses: Number of captions by status.
        left: Number of images without a caption.
        lake: The lake's folder or lake.yaml.
        strip: Path of the HTML strip with images and captions, '' without captions.
        is_demo: Whether the small shipped captioner made them.
    """

    captions: list[dict[str, Any]]
    statuses: dict[str, int]
    left: int
    lake: str
    strip: str
    is_demo: bool

    @property
    def said(self) -> str:
        """The number of captions shown by status, as one line of text."""
        found = Counter(row["status"] for row in self.captions)
        return ", ".join(f"{n:,} {status}" for status, n in found.most_common()) or "none"

    @property
    def refused(self) -> str:
        """The message of a run whose first captions were not approved, with the remedy."""
        return (
            f"the first {len(self.captions):,} captions were not approved: they stay in the lake, and nothing more was "
            "spent. Change the model or the prompt (captioners.main.prompt, by --set) and run again: captions by "
            "another prompt are others."
        )


def caption_outcome(session: Session, scorer: str) -> CaptionOutcome:
    """Read the first captions of ``scorer`` and write their HTML strip into the lake's ``reports/`` folder."""
    found = captioned.first_captions(session.lake, scorer, FIRST)
    folder = reports_folder(session.lake.uri)
    folder.mkdir(parents=True, exist_ok=True)
    mark(str(folder))
    path = folder / f"captions-{scorer[:12]}.html"
    is_demo = captioned.has_demo_weights(session.lake, scorer)
    strip = write_strip(session.lake, session.recipe, found, str(path), is_demo) if found else ""
    statuses = captioned.by_status(session.lake, scorer)
    return CaptionOutcome(found, statuses, count_uncaptioned(session.lake, scorer), session.lake.uri, strip, is_demo)
