"""Answer a request with a page."""

from typing import Any

from starlette.responses import HTMLResponse

from pairmill.flows.pages.renderer import render


def page(name: str, status: int = 200, **values: Any) -> HTMLResponse:
    """Render a template as an answer."""
    return HTMLResponse(render(name, **values).encode("utf-8", "replace"), status)
