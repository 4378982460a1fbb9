"""Serve one picture with all that the lake knows of it, and one document in reading order."""

from typing import Any

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.responses import Response

from pairmill.catalog.pending.contents import homes_of_images
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.explain.document_items import document_items
from pairmill.catalog.queries.explain.why import Facts, Scope, rows_of_key, scope_of
from pairmill.catalog.queries.explain.why_image import explain_image
from pairmill.flows.browse.asked import ID
from pairmill.flows.browse.browsed_lake import BrowsedLake
from pairmill.flows.browse.rendering import page


def routes(opened: BrowsedLake) -> APIRouter:
    """Return the routes of single items."""
    router = APIRouter()
    scopes: dict[tuple[str, str], Scope] = {}

    def scope(dataset: Dataset | None) -> Scope:
        """Return the scope of a version, which never changes; that of the newest rows is looked up each time."""
        if dataset is None:
            return scope_of(opened.lake, None)
        key = str(dataset), dataset.run_id
        if key not in scopes:
            scopes[key] = scope_of(opened.lake, dataset)
        return scopes[key]

    @router.get("/item/{image_id}")
    def item(image_id: str, dataset: str = "") -> Response:
        """Show a picture: why it is in or out, its document, duplicates, sentences, captions and cluster."""
        _check(image_id)
        lake, version = opened.lake, opened.dataset(dataset)
        with lake.one_snapshot():
            if not homes_of_images(lake, [image_id]):
                raise HTTPException(404)
            asked = scope(version)
            facts = explain_image(lake, image_id, asked)
            document = document_items(lake, facts["origin"]["document_id"], asked)
            others = _pictures_of(lake, facts["group"].get("others", ()), asked)
        values = {"facts": facts, "document": document, "pictures": others, "dataset": dataset}
        values["keeper"] = _keeper(facts)
        return page("item.html.j2", versions=opened.versions(), room="gallery", **values)

    return router


def _pictures_of(lake: Any, others: Any, scope: Scope) -> dict[str, str]:
    """Return image id -> sha256 of the other members of a duplicate group."""
    found = {}
    for row in others:
        rows = rows_of_key(lake, scope, "images", "sha256", "image_id", row["image_id"])
        if rows:
            found[row["image_id"]] = rows[0]["sha256"]
    return found


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


def _check(image_id: str) -> None:
    if not ID.fullmatch(image_id):
        raise HTTPException(404)
