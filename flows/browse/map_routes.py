"""Serve the map of a gallery's pictures: its page, places and colours of its points, and the picture at a point."""

import json

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.api.answer_types import Gallery
from pairmill.flows.browse.asked import Asked
from pairmill.flows.browse.browsed_lake import BrowsedLake
from pairmill.flows.browse.gallery_routes import cluster_names
from pairmill.flows.browse.picture_maps import MappedGallery, PictureMaps, colours, columns, labels, points
from pairmill.flows.browse.rendering import room_page, waiting_page

BINARY = "application/octet-stream"
PATIENCE = 2.0  # seconds that a request for points waits for a map that is being made


def routes(opened: BrowsedLake, maps: PictureMaps) -> APIRouter:
    """Build the router of maps: their page, places and colours of the points, and the image of a point."""
    router = APIRouter()

    def gallery_of(dataset: str) -> Gallery:
        found = opened.gallery(dataset, is_scroll=True)
        if found is None:
            raise PairmillError("the lake is being read; open the map again.")
        return found

    def mapped(dataset: str) -> MappedGallery | Response:
        """Return the map; the answer 202 while it is being computed, 409 if it cannot be."""
        try:
            found = maps.find(dataset, gallery_of(dataset), PATIENCE)
        except PairmillError as error:
            return JSONResponse({"fault": str(error)}, 409)
        return found or JSONResponse({"waiting": True}, 202)

    @router.get("/map")
    def map_page(dataset: str = "", by: str = "fate") -> Response:
        """Show the map of a dataset version, or of the whole lake."""
        from pairmill.ops.whole.projection import layout  # imports faiss, 0.3 CPU s, which a start saves

        gallery = opened.gallery(dataset)
        if gallery is None:
            return waiting_page(opened, "map", Asked.model_validate({"dataset": dataset}))
        # A lake has no fates: they are a version's, and a map of one colour would come first.
        known = [name for name in columns(gallery) if dataset or name != "fate"]
        values = {"layout": layout(), "columns": known, "by": by if by in known else known[0]}
        return room_page(opened, "map", dataset, "map.html.j2", **values)

    @router.get("/map/points")
    def map_points(dataset: str = "") -> Response:
        """Return the places of the points; as headers the digest of the projection, and the clusters' labels."""
        if isinstance(found := mapped(dataset), Response):
            return found
        named = labels(found, cluster_names(found.gallery))
        headers = {"X-Digest": found.map.digest, "X-Labels": json.dumps(named)}
        return Response(points(found), media_type=BINARY, headers=headers)

    @router.get("/map/colours")
    def map_colours(dataset: str = "", by: str = "fate") -> Response:
        """Return the colour codes of the points, and their legend as a header."""
        if isinstance(found := mapped(dataset), Response):
            return found
        codes, legend = colours(found, by)
        return Response(codes, media_type=BINARY, headers={"X-Legend": json.dumps(legend)})

    @router.get("/map/point")
    def map_point(n: int, dataset: str = "") -> Response:
        """Return the image of point ``n``."""
        if isinstance(found := mapped(dataset), Response):
            return found
        if not 0 <= n < len(found.images):
            raise HTTPException(404)
        sha256 = found.stored.names(found.vectors[n : n + 1])[0]
        earlier = int((found.vectors[:n] == found.vectors[n]).sum())  # other images with the same bytes
        return JSONResponse(found.gallery.image_with_bytes(sha256, earlier))

    return router
