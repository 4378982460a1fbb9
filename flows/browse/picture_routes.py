"""Serve pictures as JPEGs made by this program: no byte of a stranger's file reaches the page as it is."""

from contextlib import suppress

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, Response

from pairmill.flows.browse.asked import ID
from pairmill.flows.browse.browsed_lake import BrowsedLake
from pairmill.flows.pages.renderer import FOLDER
from pairmill.ops.fault import Fault
from pairmill.ops.read.places.tree import SourceError
from pairmill.tasks.release.gallery.thumbnail_cache import SIDES

FOREVER = {"Cache-Control": "private, max-age=31536000, immutable"}  # a picture never changes under its sha256


def routes(opened: BrowsedLake) -> APIRouter:
    """Return the routes of pictures."""
    router = APIRouter()

    @router.get("/picture/{size}/{sha256}")
    def picture(size: str, sha256: str) -> Response:
        """Return a picture in one of SIDES; a sign where its bytes are lost, out of reach or do not decode."""
        if size not in SIDES or not ID.fullmatch(sha256):
            raise HTTPException(404)
        path = opened.thumbnails.find(sha256, f"{size}.jpg")
        if path is None:
            shard = opened.shard_of(sha256)
            with suppress(SourceError):  # the lake only refers to the picture, and its source is not mounted
                path = opened.thumbnails.make({sha256: shard}, size).get(sha256) if shard else None
        if path is None or isinstance(path, Fault):
            return FileResponse(FOLDER / "static" / "lost.svg", media_type="image/svg+xml")
        return FileResponse(path, media_type="image/jpeg", headers=FOREVER)

    return router
