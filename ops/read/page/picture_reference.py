"""Find the elements of a page that show images, and the candidate addresses of each, best first."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

# Attributes in which lazy-loading pages store the real address while src holds a placeholder.
LAZY = ("data-src", "data-original", "data-lazy-src", "data-lazy", "data-url", "data-full-src")
LAZY_SETS = ("data-srcset", "data-lazy-srcset")
# The most <source> elements to read of a <picture>: it has one per format and size, a hostile one a hundred thousand.
MOST_SOURCES = 16
SHOWING = ("img", "image", "input", "object", "embed", "video")


@dataclass(frozen=True)
class PictureReference:
    """One image element of a page; ``sources`` are its candidate addresses as written, best first."""

    sources: tuple[str, ...]
    alt_text: str


def references(root: Any) -> Iterator[PictureReference]:
    """Yield the images of a page, or of a part of it, without its text."""
    return (found for element in root.iter(*SHOWING) if (found := picture(element)))


def picture(element: Any) -> PictureReference | None:
    """Read an element that shows an image: img, SVG image, input, object, embed, a video's poster; else return None."""
    tag = element.tag
    if tag == "img":
        sources = _image_sources(element)
    elif tag == "image":
        # SVG's element; outside of SVG browsers treat it as img.
        sources = [element.get("href"), element.get("xlink:href"), element.get("src")]
    elif tag == "input" and (element.get("type") or "").lower() == "image":
        sources = [element.get("src")]
    elif tag in ("object", "embed") and (element.get("type") or "").lower().startswith("image/"):
        sources = [element.get("data") or element.get("src")]
    elif tag == "video" and element.get("poster"):
        sources = [element.get("poster")]
    else:
        return None
    alt = element.get("alt") or element.get("title") or element.get("aria-label") or ""
    return PictureReference(tuple(dict.fromkeys(source for source in sources if source)), " ".join(alt.split()))


def _image_sources(element: Any) -> list[str | None]:
    """List an img's addresses, best first: src, lazy-loading attributes, srcset, then the <picture>'s sources.

    The lazy-loading attributes come before a src that is only a placeholder.
    """
    src = (element.get("src") or "").strip()
    lazy = [element.get(name) for name in LAZY if element.get(name)]
    for name in LAZY_SETS:
        lazy += _srcset(element.get(name) or "")
    sources: list[str | None] = [*lazy, src] if src.startswith("data:") or not src else [src, *lazy]
    sources += _srcset(element.get("srcset") or "")
    # The parser nests what follows a <source> inside it, so the <picture> may be far above.
    for above in islice(element.iterancestors("picture"), 1):
        for source in islice(above.iter("source"), MOST_SOURCES):
            sources += _srcset(source.get("srcset") or source.get("data-srcset") or "")
    return sources


def _srcset(value: str) -> list[str]:
    """List the addresses of a srcset, largest image first.

    An address may itself hold commas (data: URIs, CDNs).
    """
    sized: list[tuple[float, str]] = []
    value = " ".join(value.split())  # a run of spaces would take quadratic time below
    for found in re.finditer(r"\s*([^\s,]\S*[^\s,]|[^\s,])(?:\s+([\d.]+)[wxh])?[^,]*(?:,|$)", value):
        try:
            sized.append((float(found[2] or 1), found[1]))
        except ValueError:
            sized.append((1.0, found[1]))
    return [address for _, address in sorted(sized, key=lambda pair: -pair[0])]
