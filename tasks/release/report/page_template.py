"""Render self-contained pages from the templates of `report_page`, and write them so that none is half there."""

import base64
import hashlib
import os
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from pairmill.catalog.terms import machine_cache
from pairmill.catalog.terms.controls import visible
from pairmill.catalog.terms.whole_file import whole_file
from pairmill.tasks.release.report import charts

FOLDER = Path(__file__).resolve().parent / "report_page"
SCRIPT = "page.js"


def render(name: str, **values: Any) -> str:
    """Render a template of the folder, which escapes all values: texts and addresses come from the web.

    Control characters in values are made visible. The page's style and script are part of it, and its content policy
    allows this script alone, by its hash, and no request.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        bytecode_cache=_compiled_templates(),
    )
    environment.filters |= {"number": charts.number, "size": _size, "duration": _duration}
    style, script = ((FOLDER / file).read_text(encoding="utf-8") for file in ("page.css", SCRIPT))
    parts = {"style": Markup(style), "script": Markup(script), "policy": page_policy()}
    return environment.get_template(name).render(**parts, **values)


def _compiled_templates() -> jinja2.BytecodeCache | None:
    """Return this machine's cache of compiled templates; None if its folder cannot be written to.

    Compiling takes 8 % of the CPU time of a small report. Jinja checks the template's text; the environment's options
    stand in this file, whose digest is part of the names.
    """
    folder = machine_cache.folder() / "templates"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    digest = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]
    return jinja2.FileSystemBytecodeCache(str(folder), f"{digest}-%s") if os.access(folder, os.W_OK) else None


def page_policy() -> str:
    """Return the content policy of a page: its own style, script and embedded pictures, and no request."""
    digest = base64.b64encode(hashlib.sha256((FOLDER / SCRIPT).read_bytes()).digest()).decode()
    return (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )


def write_page(html: str, path: str) -> str:
    """Write a page to the local file ``path``, with the folders to it, and return the path."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with whole_file(path, is_synced=True) as half:
        half.write_text(html, encoding="utf-8", errors="replace")
    return path


def _shown(value: Any) -> Any:
    """Return text with control characters made visible."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _size(n: float | None) -> str:
    """Format a number of bytes."""
    n = float(n or 0)
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if n < 1000 or unit == "TB":
            return f"{n:.0f} B" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1000
    raise AssertionError("unreachable")


def _duration(seconds: float | None) -> str:
    """Format a duration in seconds."""
    if not seconds:
        return "–"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"
