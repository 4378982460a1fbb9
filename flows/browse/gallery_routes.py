"""Serve galleries: pictures of a dataset version or of the whole lake, filtered, sorted and searched."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, Any

from fastapi import APIRouter, BackgroundTasks, Body, Query
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.api.answer_types import FACETS, Choice, Gallery, GalleryPage
from pairmill.flows.browse.asked import Asked
from pairmill.flows.browse.browsed_lake import BrowsedLake
from pairmill.flows.browse.picture_maps import PictureMaps
from pairmill.flows.browse.picture_search import PictureSearch
from pairmill.flows.browse.rendering import page, room_page, waiting_page
from pairmill.ops.read.places.tree import SourceError

MOST_BYTES = 50_000_000
STRIP = 24  # pictures of a cluster, kept and dropped
Asking = Annotated[Asked, Query()]
Choosing = Callable[[Asked, Gallery], Choice]


def choosing(opened: BrowsedLake, search: PictureSearch, maps: PictureMaps) -> Choosing:
    """Return the function that turns the query string of a gallery into its choice of images."""

    def choice_of(asked: Asked, shown: Gallery) -> Choice:
        found = search.find(asked.dataset, asked.words, asked.like)
        sets = maps.area(asked.dataset, shown, asked.area), opened.changed(asked.since, asked.until, asked.change)
        return asked.choice(None if found is None else tuple(found), tuple(each for each in sets if each))

    return choice_of


def routes(opened: BrowsedLake, search: PictureSearch, choice_of: Choosing) -> APIRouter:
    """Build the router of galleries: their pages, further images, and uploads of a picture to search by."""
    router = APIRouter()

    def content(found: GalleryPage, asked: Asked) -> dict[str, Any]:
        """Return the values of a page's cards, with acts that the version lacks and texts of several captioners."""
        shas, lake = [row["sha256"] for row in found.images], opened.connection("marks")
        marks = lake.marks_on(asked.dataset, shas) if asked.dataset else {}
        demo, several = opened.models(opened.newest.get(asked.dataset))
        captions = lake.captions_on(asked.dataset, shas) if several else {}
        similar = search.find(asked.dataset, asked.words, asked.like) or {}
        values = {"images": found.images, "after": found.after, "marks": marks, "captions": captions}
        return values | {"similar": similar, "demo_weights": demo}

    @router.get("/gallery")
    def gallery(asked: Asking, later: BackgroundTasks) -> Response:
        """Show the first page of a gallery with its filters."""
        shown = opened.gallery(asked.dataset)
        if shown is None:
            return waiting_page(opened, "gallery", asked)
        found: dict[str, Any] = {"images": []}
        counts, total, fault = [], 0, ""
        try:
            choice = choice_of(asked, shown)
            found = content(shown.page(choice, asked.order, asked.after), asked)
            counts, total = shown.fates(choice), shown.count(choice)
        except PairmillError as error:  # the filters stay as they are, to be mended
            fault = str(error)
        later.add_task(_prepare, opened, found["images"])
        values = {"fates": counts, "total": total, "fault": fault, "facets": _facets(shown), "numbers": shown.numbers}
        values |= {"asked": asked, "status": 400 if fault else 200, "is_loaded": search.is_loaded, **found}
        return room_page(opened, "gallery", asked.dataset, "gallery.html.j2", **values)

    @router.get("/gallery/more")
    def more(asked: Asking, later: BackgroundTasks) -> Response:
        """Return the next page of a gallery, to be inserted at its end."""
        shown = opened.gallery(asked.dataset, is_scroll=True)
        if shown is None:
            raise PairmillError("the lake is being read; open the gallery again.")
        choice = choice_of(asked, shown)
        found = content(shown.page(choice, asked.order, asked.after), asked)
        later.add_task(_prepare, opened, found["images"])
        return page("cards.html.j2", asked=asked, **found)

    @router.get("/cluster/{number}")
    def cluster(number: int, dataset: str = "") -> Response:
        """Show a cluster: its name, its pictures kept and dropped, and the recipe's cap."""
        shown, version = opened.gallery(dataset), opened.dataset(dataset)
        if shown is None:
            return waiting_page(opened, f"cluster/{number}", Asked.model_validate({"dataset": dataset}))
        of = Choice(cluster=number)
        if not (total := shown.count(of)):
            raise HTTPException(404)
        kept, dropped = (shown.page(replace(of, fate=fate), rows=STRIP).images for fate in ("kept", "dropped"))
        balance = opened.lake.dataset(dataset).recipe.balance if version else None
        values = {"number": number, "label": cluster_names(shown).get(number, ""), "total": total, "kept": kept}
        values |= {"dropped": dropped, "fates": dict(shown.fates(of)), "cap": balance.cap if balance else None}
        return room_page(opened, "gallery", version, "cluster.html.j2", **values)

    @router.post("/like")
    def like(asked: Asking, picture: Annotated[bytes, Body(max_length=MOST_BYTES)]) -> Response:
        """Return the address of the gallery of pictures similar to an uploaded one, which is not stored."""
        name = search.upload(asked.dataset, picture)
        return JSONResponse({"location": f"/gallery?{asked.query(like=name, words='')}"})

    return router


@lru_cache(8)
def _facets(gallery: Gallery) -> dict[str, Any]:
    """Return name -> [(value, number of images, label)], for each column of a gallery with more than one value."""
    found: dict[str, Any] = {name: gallery.facet(column) for name, column in FACETS.items()}
    found |= {"cluster": gallery.facet("cluster"), "tag": gallery.tags()}
    if "caption_status" in gallery.types:
        found["status"] = gallery.facet("caption_status")
    names = cluster_names(gallery)
    several = {facet: values for facet, values in found.items() if len(values) > 1}
    return {facet: [(value, n, _label(facet, value, names)) for value, n in several[facet]] for facet in several}


@lru_cache(8)
def cluster_names(gallery: Gallery) -> Mapping[int, str]:
    """Return cluster -> name of a gallery's largest clusters."""
    return gallery.cluster_names([cluster for cluster, _ in gallery.facet("cluster")])


def forget() -> None:
    """Clear the cached filter values of all galleries, after rows were removed."""
    _facets.cache_clear()
    cluster_names.cache_clear()


def _label(facet: str, value: Any, names: Mapping[int, str]) -> str:
    """Return the label of a filter's value: a cluster with its name, of a long text the last 60 characters."""
    name = names.get(value, "") if facet == "cluster" else ""
    return f"{value} {name}"[:60] if name else str(value)[-60:]


def _prepare(opened: BrowsedLake, images: list[dict[str, Any]]) -> None:
    """Make a page's thumbnails shard by shard, before the browser requests them; none if a source is out of reach."""
    with suppress(SourceError):
        opened.thumbnails.make({row["sha256"]: row["shard"] for row in images if row["shard"]}, "small")
