"""Serve the difference of two dataset versions: pairs gained, lost and changed, by cause, with their pictures."""

from urllib.parse import urlencode

from fastapi import APIRouter
from starlette.responses import Response

from pairmill.flows.api.answer_types import Dataset, Difference
from pairmill.flows.browse.browsed_lake import BrowsedLake
from pairmill.flows.browse.rendering import page

SHOWN = 12  # pictures of each cause


def routes(opened: BrowsedLake) -> APIRouter:
    """Return the routes of comparisons."""
    router = APIRouter()

    @router.get("/compare")
    def compare(dataset: str = "", before: str = "") -> Response:
        """Compare a version with an earlier one; by default the newest with the one before it."""
        versions = opened.versions()
        after = opened.dataset(dataset) or next(iter(versions), None)
        earlier = [each for each in versions if after and each.name == after.name and each.version < after.version]
        other = opened.dataset(before) or next(iter(earlier), None)
        frame = {"versions": versions, "room": "compare", "dataset": str(after or "")}
        if after is None or other is None:
            message = "There is one version of this dataset; a second run with another recipe makes the next."
            return page("error.html.j2", title="Nothing to compare yet", message=message, **frame)
        found = opened.lake.differences(str(other), str(after), SHOWN)
        rows = [(each, _gallery(each, other, after)) for each in found]
        return page("compare.html.j2", before=str(other), after=str(after), changes=rows, **frame)

    return router


def _gallery(change: Difference, before: Dataset, after: Dataset) -> str:
    """Return the query of the gallery of a change: of the earlier version where the later has not got the images."""
    shown = before if (change.kind, change.cause) == ("lost", "gone") else after
    named = {"dataset": shown, "change": f"{change.kind}:{change.cause}", "since": before, "until": after}
    return urlencode(named)
