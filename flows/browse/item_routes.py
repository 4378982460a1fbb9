"""Serve one picture or sentence: a page with its facts in the lake, and the picture as a JPEG.

The JPEG is encoded from the decoded pixels: no byte of a source's file reaches the browser.
"""

from contextlib import suppress

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, Response

from pairmill.flows.api.answer_types import Facts
from pairmill.flows.browse.asked import ID
from pairmill.flows.browse.browsed_lake import BrowsedLake
from pairmill.flows.browse.rendering import room_page
from pairmill.flows.pages.renderer import FOLDER
from pairmill.ops.fault import Fault
from pairmill.ops.read.places.tree import SourceError
from pairmill.tasks.release.gallery.thumbnails import SIDES


def routes(opened: BrowsedLake) -> APIRouter:
    """Build the router of single items: pages of pictures and sentences, and the pictures as JPEG."""
    router = APIRouter()

    @router.get("/item/{image_id}")
    def item(image_id: str, dataset: str = "") -> Response:
        """Show a picture: why it is in or out, its document, duplicates, sentences, captions and cluster."""
        found = opened.lake.item_page("image", image_id, dataset) if ID.fullmatch(image_id) else None
        if found is None:
            raise HTTPException(404)
        values = {"facts": found.facts, "document": found.document, "keeper": _keeper(found.facts)}
        return room_page(opened, "gallery", dataset, "item.html.j2", **values)

    @router.get("/sentence/{content}")
    def sentence(content: str, dataset: str = "") -> Response:
        """Show a sentence: why it is in or out, its scores, pictures and document."""
        found = opened.lake.item_page("sentence", content, dataset) if ID.fullmatch(content) else None
        if found is None:
            raise HTTPException(404)
        return room_page(opened, "gallery", dataset, "sentence.html.j2", facts=found.facts, document=found.document)

    @router.get("/picture/{size}/{sha256}")
    def picture(size: str, sha256: str) -> Response:
        """Return a picture in one of SIDES; a placeholder if its bytes are lost, out of reach or do not decode."""
        if size not in SIDES or not ID.fullmatch(sha256):
            raise HTTPException(404)
        path = opened.thumbnails.find(sha256, f"{size}.jpg")
        if path is None and (shard := opened.shard_of(sha256)):
            with suppress(SourceError):  # the lake only refers to the picture, and its source is not mounted
                path = opened.thumbnails.make({sha256: shard}, size).get(sha256)
        if path is None or isinstance(path, Fault):
            return FileResponse(FOLDER / "static" / "lost.svg", media_type="image/svg+xml")
        # Not to be stored by the browser, as the guard says of every page: it may be removed from the lake.
        return FileResponse(path, media_type="image/jpeg")

    return router


def _keeper(facts: Facts) -> str:
    """Return the id of the image that the cut kept of a duplicate group, '' if it is unknown."""
    origin, decision = facts["origin"], facts["decision"]
    if decision.get("dropped_by") == "duplicate":
        return decision["value"]
    members = [{**decision, "image_id": origin["image_id"]}, *facts["group"].get("others", ())]
    causes = [(row["image_id"], row.get("dropped_by")) for row in members]
    standing = [image for image, cause in causes if cause not in (None, "duplicate", "exact_duplicate")]
    is_group = any(cause == "duplicate" for _, cause in causes)
    return standing[0] if is_group and len(standing) == 1 else ""
