"""Render the browser's templates: every value is escaped, and control characters in it are made visible."""

from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup
from starlette.responses import HTMLResponse

from pairmill.catalog.terms.controls import visible

FOLDER = Path(__file__).resolve().parent
ROOMS = (("gallery", "Gallery"), ("map", "Map"), ("rules", "Rules"), ("judge", "Judge"), ("compare", "Compare"))


@cache
def environment() -> jinja2.Environment:
    """Return the templates' environment: captions, names and addresses come from the web, and are hostile."""
    found = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["number"] = number
    found.globals["rooms"] = ROOMS
    found.filters["path"] = lambda text: quote(str(text), safe="")
    return found


def _shown(value: Any) -> Any:
    """Return text with control characters made visible, '' for None."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value)
    return "" if value is None else value


def number(value: Any) -> str:
    """Format a number: thousands separated, four significant digits after a point; '–' for none."""
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def page(name: str, status: int = 200, **values: Any) -> HTMLResponse:
    """Render a template."""
    html = environment().get_template(name).render(**{"dataset": "", "room": "", **values})
    return HTMLResponse(html.encode("utf-8", "replace"), status)
