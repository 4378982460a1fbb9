"""Serve one picture with all that the lake knows of it, and one document in reading order."""

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.responses import Response

from pairmill.flows.api.answer_types import Facts
from pairmill.flows.browse.asked import ID
from pairmill.flows.browse.browsed_lake import BrowsedLake
from pairmill.flows.browse.rendering import page


def routes(opened: BrowsedLake) -> APIRouter:
    """Return the routes of single items."""
    router = APIRouter()

    @router.get("/item/{image_id}")
    def item(image_id: str, dataset: str = "") -> Response:
        """Show a picture: why it is in or out, its document, duplicates, sentences, captions and cluster."""
        found = opened.lake.picture(image_id, dataset) if ID.fullmatch(image_id) else None
        if found is None:
            raise HTTPException(404)
        values = {"facts": found.facts, "document": found.document, "dataset": dataset, "keeper": _keeper(found.facts)}
        return page("item.html.j2", versions=opened.versions(), room="gallery", **values)

    return router


def _keeper(facts: Facts) -> str:
    """Return the image that stands for the duplicate group: the one that a member was dropped for; '' if unknown."""
    origin, decision = facts["origin"], facts["decision"]
    members = [{**decision, "image_id": origin["image_id"]}, *facts["group"].get("others", ())]
    fell = [row for row in members if row.get("dropped_by") == "duplicate"]
    if decision.get("dropped_by") == "duplicate":
        return decision["value"]
    standing = [
        row["image_id"] for row in members if row.get("dropped_by") not in (None, "duplicate", "exact_duplicate")
    ]
    return standing[0] if fell and len(standing) == 1 else ""
