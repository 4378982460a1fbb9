"""Render HTML pages from templates: for the browser, or saved to one file that requests nothing.

Every value is escaped, and control characters in it are made visible: captions, names and addresses come from the web,
and are hostile.
"""

import hashlib
import math
import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup

from pairmill.catalog.terms.controls import visible
from pairmill.catalog.terms.whole_file import cache_home, whole_file

FOLDER = Path(__file__).resolve().parent
ROOMS = (("gallery", "Gallery"), ("map", "Map"), ("rules", "Rules"), ("judge", "Judge"), ("compare", "Compare"),
         ("acts", "Acts"))  # fmt: skip
# The content policy of a saved page: its own style and embedded pictures, no script and no request.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def render(name: str, **values: Any) -> str:
    """Render a template as an HTML page of `pairmill browse`."""
    return _environment().get_template(name).render(**{"dataset": "", "room": "", "demo_weights": (), **values})


def render_whole(name: str, **values: Any) -> str:
    """Render a template as a self-contained HTML page to save: with its style sheet, and pictures as data: URLs."""
    style = Markup((FOLDER / "static" / "pages.css").read_text(encoding="utf-8"))
    return render(name, style=style, policy=POLICY, **values)


def write_page(html: str, path: str) -> str:
    """Write a page to the local file ``path``, whose folders are created, and return the path."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with whole_file(path, is_synced=True) as half:
        half.write_text(html, encoding="utf-8", errors="replace")
    return path


def number(value: Any) -> str:
    """Format a number: '1,234', '0.1235' (four significant digits), '–' for None; return a text unchanged."""
    if value is None:
        return "–"
    if isinstance(value, str | bool):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    value = float(value) + 0.0  # no -0
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


@cache
def _environment() -> jinja2.Environment:
    """Return the templates' environment."""
    found = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        bytecode_cache=_compiled_templates(),
    )
    found.filters |= {"number": number, "size": _size, "duration": _duration, "bars": lambda drawn: bars(drawn, number)}
    found.filters["path"] = lambda text: quote(str(text), safe="")
    found.globals["rooms"] = ROOMS
    return found


def _compiled_templates() -> jinja2.BytecodeCache | None:
    """Return this machine's cache of compiled templates, 8 % of a small report's time; None if not writable."""
    folder = cache_home() / "templates"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    digest = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]
    return jinja2.FileSystemBytecodeCache(str(folder), f"{digest}-%s") if os.access(folder, os.W_OK) else None


def _shown(value: Any) -> Any:
    """Return text with control characters made visible, '' for None."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value)
    return "" if value is None else value


def _size(n: float | None) -> str:
    """Format a number of bytes."""
    n = float(n or 0)
    for unit in ("B", "KB", "MB", "GB"):
        if n < 1000:
            return f"{n:.0f} B" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1000
    return f"{n:,.1f} TB"


def _duration(seconds: float | None) -> str:
    """Format a duration in seconds."""
    if not seconds:
        return "–"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"


if TYPE_CHECKING:
    from pairmill.flows.api.answer_types import Histogram


def bars(drawn: "Histogram", number: Callable[[float], str]) -> list[tuple[int, str, bool]]:
    """Return (count, title, whether the rule drops the bin's middle) for each bin of a histogram."""
    found = []
    for at, count in enumerate(drawn.counts):
        start, end = drawn.low + at * drawn.width, drawn.low + (at + 1) * drawn.width
        is_one = drawn.is_whole and drawn.width == 1
        values = number(start) if is_one else f"{number(start)} to {number(end)}"
        found.append((count, f"{values}: {count:,}", not _passes(drawn, start if is_one else (start + end) / 2)))
    return found


def _passes(drawn: "Histogram", value: float) -> bool:
    """Return whether the rule keeps a value."""
    q = drawn.quantity
    above = q.low is None or value > q.low or (value == q.low and not q.strict_low)
    return above and (q.high is None or value < q.high or (value == q.high and not q.strict_high))


def cluster_sizes(n: int, sizes: Sequence[tuple[int, int, int]], cap: int) -> dict[str, Any]:
    """Lay out a chart of ``n`` clusters from ``sizes``: (rank, size before the cap, size after), largest first.

    Returns ``bars``: (height before, height after, title), heights in [0, 100]; ``line``: height of the cap; and
    ``is_log``: whether heights are logarithmic, as if the largest is over 20 times the median. {} without sizes.
    """
    if not sizes:
        return {}
    largest = max(before for _, before, _ in sizes)
    top = max(largest, min(cap, 2 * largest))
    is_log = largest > 20 * max(1, sizes[len(sizes) // 2][1])

    def height(value: float) -> float:
        return round(100 * (math.log1p(value) / math.log1p(top) if is_log else value / top), 2)

    laid = [(height(b), height(a), f"rank {rank:,}: {b:,} before, {a:,} after") for rank, b, a in sizes]
    line = min(height(cap), 100.0)
    return {"n": n, "bars": laid, "cap": cap, "line": line, "largest": largest, "is_log": is_log}
