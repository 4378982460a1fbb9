"""Collect what is shown of a captioner's work: its first captions, their strip, and how many there are by status."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from pairmill.catalog.ask import captioned
from pairmill.catalog.lake.opening import mark
from pairmill.catalog.pending.uncaptioned import count_uncaptioned
from pairmill.flows.outcome import reports_folder
from pairmill.tasks.generate.caption_all import FIRST
from pairmill.tasks.out.caption_strip import write_strip
from pairmill.tasks.run.session import Session


@dataclass(frozen=True)
class CaptionOutcome:
    """The first captions (rows of `first_captions`), captions by status, how many pictures still lack one, and the path
    of the HTML strip."""

    captions: list[dict[str, Any]]
    statuses: dict[str, int]
    left: int
    strip: str

    @property
    def said(self) -> str:
        """One line for people: how many of the captions shown are of which status."""
        found = Counter(row["status"] for row in self.captions)
        return ", ".join(f"{n:,} {status}" for status, n in found.most_common()) or "none"

    @property
    def refused(self) -> str:
        """What the run ends with when these are not approved, and how to go on."""
        return (
            f"the first {len(self.captions):,} captions were not approved: they stay in the lake, and nothing more was "
            "spent. Change the model or the prompt (captioners.main.prompt, by --set) and run again: captions by "
            "another prompt are others."
        )


def caption_outcome(session: Session, scorer: str) -> CaptionOutcome:
    """Read the first captions of ``scorer`` and write their strip into ``reports/`` of the lake."""
    found = captioned.first_captions(session.lake, scorer, FIRST)
    folder = reports_folder(session.lake.uri)
    folder.mkdir(parents=True, exist_ok=True)
    mark(str(folder))
    path = folder / f"captions-{scorer[:12]}.html"
    strip = write_strip(session.lake, session.recipe, found, str(path)) if found else ""
    statuses = captioned.by_status(session.lake, scorer)
    return CaptionOutcome(found, statuses, count_uncaptioned(session.lake, scorer), strip)
