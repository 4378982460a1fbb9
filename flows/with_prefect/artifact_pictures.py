"""Embed small pictures in the Markdown of artifacts, and link to the report that `pairmill browse` serves."""

import os
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from prefect.logging import get_logger

from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.run.outcome import Outcome
from pairmill.flows.with_prefect.artifact_texts import plain

if TYPE_CHECKING:
    from pairmill.flows.run.caption_outcome import CaptionOutcome

SIDE = 112  # pixels of the longer side: 40 pictures take some 120 KB of Prefect's database
CAPTIONS = 24  # captions beside which a picture is shown
BROWSE_URL = "PAIRMILL_BROWSE_URL"


def picture_gallery(found: Outcome) -> str:
    """Return Markdown with embedded pictures of a version, dropped by each rule and kept; '' if they cannot be read."""
    from pairmill.tasks.release.report.report_pictures import few_pictures

    try:
        with create_or_open(found.lake, read_only=True) as lake:
            fates = few_pictures(lake, found.dataset, SIDE)
    except (PairmillError, OSError) as error:
        get_logger(__name__).warning(f"the pictures could not be shown: {error}")
        return ""
    dropped = {step.rule: step.n_dropped for step in found.funnel if step.kind == "image"}
    lines = [f"# Pictures of {plain(str(found.dataset))}"]
    for fate in ("", *(rule for rule in dropped if rule in fates)):
        n = dropped[fate] if fate else found.dataset.n_pairs
        shown = [_image(row["picture"], row["image_id"]) for row in fates.get(fate, []) if row["picture"]]
        if shown:
            lines += ["", f"## {plain(fate)}: {n:,} dropped" if fate else f"## Kept: {n:,}", ""]
            lines += _row(shown)
    return "\n".join(lines)


def row_of_images(pictures: list[tuple[str, str]], said: list[str]) -> list[str]:
    """Return lines of Markdown: pictures (data: URL, name) side by side, and below each what is said of it."""
    images = [_image(*picture) if picture[0] else "(out of reach)" for picture in pictures]
    return [*_row(images), f"| {' | '.join(said)} |"]


def _row(cells: list[str]) -> list[str]:
    """Return a table's row below an empty head: elsewhere Prefect's interface puts each picture on its own line."""
    return ["|   " * len(cells) + "|", "| --- " * len(cells) + "|", f"| {' | '.join(cells)} |"]


def caption_pictures(found: "CaptionOutcome") -> dict[str, str]:
    """Return Markdown of a picture for the first CAPTIONS captions, by sha256; {} if they cannot be read."""
    from pairmill.tasks.release.gallery.thumbnails import thumbnails

    wanted = sorted({(row["sha256"], row["shard"]) for row in found.captions[:CAPTIONS]})
    try:
        with create_or_open(found.lake, read_only=True) as lake:
            made = thumbnails(lake, wanted, SIDE)
    except (PairmillError, OSError) as error:
        get_logger(__name__).warning(f"the pictures could not be shown: {error}")
        return {}
    return {sha256: _image(row["picture"], sha256) + " " for sha256, row in made.items() if row["picture"]}


def report_link(dataset: Dataset) -> str:
    """Return the address of the version's report in the browser that PAIRMILL_BROWSE_URL names; '' without one.

    A token in that address is left out: whoever opened the browser by its token once has its cookie, and Prefect's
    database is no place for a secret.
    """
    given = urlsplit(os.environ.get(BROWSE_URL, ""))
    if not given.geturl():
        return ""
    if given.scheme not in ("http", "https") or not given.hostname:
        get_logger(__name__).warning(f"{BROWSE_URL} is no http address, so that the report is not linked.")
        return ""
    host = given.netloc.rpartition("@")[2]
    return f"{given.scheme}://{host}{given.path.rstrip('/')}/report?dataset={quote(str(dataset), safe='')}"


def _image(data_url: str, name: str) -> str:
    """Return Markdown of an image."""
    return f"![{name}]({data_url})"
