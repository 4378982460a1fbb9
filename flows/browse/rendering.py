"""Render pages as answers to requests."""

from typing import Any

from starlette.responses import HTMLResponse

from pairmill.flows.api.answer_types import Dataset
from pairmill.flows.browse.asked import Asked
from pairmill.flows.browse.browsed_lake import BrowsedLake
from pairmill.flows.pages.renderer import render


def page(name: str, status: int = 200, **values: Any) -> HTMLResponse:
    """Render the template ``name`` with ``values`` as an HTML response."""
    return HTMLResponse(render(name, **values).encode("utf-8", "replace"), status)


def room_page(opened: BrowsedLake, room: str, dataset: Dataset | str | None, name: str, **values: Any) -> HTMLResponse:
    """Render the template ``name`` as a page of the section ``room``, with a menu of all versions.

    ``dataset`` is the version that the page shows, '' or None for none.
    """
    versions, shown = opened.versions(), str(dataset or "")
    demo, _ = opened.models(next((each for each in versions if str(each) == shown), None))
    return page(name, **({"versions": versions, "room": room, "dataset": shown, "demo_weights": demo} | values))


def unpublished_page(opened: BrowsedLake, room: str, title: str) -> HTMLResponse:
    """Render the page of the section ``room`` of a lake without a dataset."""
    message = "No dataset is published here; a run makes one."
    return room_page(opened, room, None, "error.html.j2", title=title, message=message)


def waiting_page(opened: BrowsedLake, room: str, asked: Asked) -> HTMLResponse:
    """Render the page that the section ``room`` shows while its gallery is being built."""
    return room_page(opened, room, asked.dataset, "waiting.html.j2", path=f"/{room}", asked=asked)
