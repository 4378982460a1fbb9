"""Serve galleries: pictures of a dataset version or of the whole lake, filtered, sorted and searched."""

import threading
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, BackgroundTasks, Query
from starlette.responses import Response

from pairmill.catalog.ask.gallery_query import FACETS, Gallery, GalleryPage
from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.browse.asked import Asked
from pairmill.flows.browse.open_lake import OpenLake
from pairmill.flows.browse.rendering import page

Asking = Annotated[Asked, Query()]


def routes(opened: OpenLake) -> APIRouter:
    """Return the routes of galleries."""
    router = APIRouter()
    facets = Facets()

    @router.get("/gallery")
    def gallery(asked: Asking, later: BackgroundTasks) -> Response:
        """Show the first page of a gallery with its filters."""
        shown = opened.gallery(asked.dataset)
        frame = {"asked": asked, "versions": opened.versions(), "room": "gallery",
                 "dataset": asked.dataset}  # fmt: skip
        if shown is None:
            return page("waiting.html.j2", **frame)
        found = {"images": [], "after": ""}
        counts, total, fault = [], 0, ""
        try:
            choice = asked.choice()
            found = _content(shown.page(choice, asked.order, asked.after))
            counts, total = shown.fates(choice), shown.count(choice)
        except PairmillError as error:  # the filters stay as they are, to be mended
            fault = str(error)
        later.add_task(_prepare, opened, found["images"])
        values = {"fates": counts, "total": total, "fault": fault, "facets": facets.of(shown), "numbers": shown.numbers}
        return page("gallery.html.j2", 400 if fault else 200, **frame, **found, **values)

    @router.get("/gallery/more")
    def more(asked: Asking, later: BackgroundTasks) -> Response:
        """Return the next page of a gallery, to be inserted at its end."""
        shown = opened.gallery(asked.dataset, is_scroll=True)
        if shown is None:
            raise PairmillError("the lake is being read; open the gallery again.")
        found = _content(shown.page(asked.choice(), asked.order, asked.after))
        later.add_task(_prepare, opened, found["images"])
        return page("cards.html.j2", asked=asked, **found)

    return router


class Facets:
    """The values that a gallery can be filtered by, counted once per gallery."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[Gallery, Mapping[str, Any]]] = {}
        self._lock = threading.Lock()

    def of(self, gallery: Gallery) -> Mapping[str, Any]:
        """Return name -> [(value, number of images)], for each column with more than one value."""
        with self._lock:
            if id(gallery) not in self._found:
                found: dict[str, Any] = {name: gallery.facet(column) for name, column in FACETS.items()}
                found["cluster"], found["tag"] = gallery.facet("cluster"), gallery.tags()
                if "caption_status" in gallery.types:
                    found["status"] = gallery.facet("caption_status")
                self._found[id(gallery)] = gallery, {name: values for name, values in found.items() if len(values) > 1}
            return self._found[id(gallery)][1]


def _content(found: GalleryPage) -> dict[str, Any]:
    return {"images": found.images, "after": found.after}


def _prepare(opened: OpenLake, images: list[dict[str, Any]]) -> None:
    """Make the thumbnails of a page shard by shard, before the page asks for them one by one."""
    opened.thumbnails.make({row["sha256"]: row["shard"] for row in images if row["shard"]}, "small")
