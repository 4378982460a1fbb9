"""Serve the difference of two dataset versions: pairs gained, lost and changed, by cause, with their pictures."""

from fastapi import APIRouter
from starlette.responses import Response

from pairmill.catalog.ask.changes import changed_images, changes
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
        found = changes(opened.lake, other, after)
        rows = [(each, changed_images(opened.lake, other, after, each, SHOWN)) for each in found]
        return page("compare.html.j2", before=str(other), after=str(after), changes=rows, **frame)

    return router
