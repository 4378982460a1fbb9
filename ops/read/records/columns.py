"""Recognise a picture table's columns (address, bytes, captions) by the names that released datasets use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pairmill.ops.fault import Fault
from pairmill.ops.read.document import Document, Picture, Text, picture_of_file
from pairmill.ops.read.document_metadata import as_storable, clean
from pairmill.ops.read.page.links import resolve
from pairmill.ops.read.places.tree import Tree

# LAION, COYO, DataComp, Conceptual Captions, img2dataset; compared without case, best first.
ADDRESSES = ("url", "image_url", "img_url", "image_urls", "raw_image_url", "image_link", "photo_image_url")
HELD = ("image", "img", "picture", "photo", "jpg", "jpeg", "png", "webp", "bytes", "data", "content", "pixels")
CAPTIONS = (
    "caption",
    "captions",
    "text",
    "texts",
    "alt",
    "alt_text",
    "alttext",
    "description",
    "sentence",
    "sentences",
)
CAPTION_STARTS = ("caption_", "text_", "alt_text_", "sentence", "top_caption")


def address(columns: Mapping[str, str]) -> str:
    """Name the column of picture addresses; '' for none."""
    lower = {name.lower(): name for name, kind in reversed(list(columns.items())) if kind == "text"}
    return next((lower[name] for name in ADDRESSES if name in lower), "")


def is_interleaved(kinds: Mapping[str, str]) -> bool:
    """Whether a table has the shape of OBELICS: lists of pictures and of texts in parallel."""
    lists = ("texts", "helds", "list")
    return kinds.get("images") in lists and kinds.get("texts") in lists


def held(columns: Mapping[str, str]) -> list[str]:
    """Name the columns that hold encoded pictures: structs with bytes, or binary under a picture's name."""
    return [
        name
        for name, kind in columns.items()
        if kind in ("held", "helds") or (kind == "binary" and _is_picture_name(name.lower()))
    ]


def _is_picture_name(name: str) -> bool:
    return name in HELD or any(word in name for word in ("image", "img", "picture", "photo"))


def captions(columns: Mapping[str, str]) -> list[str]:
    """Name the columns with captions, single or lists, best first."""
    found = [name for name, kind in columns.items() if kind in ("text", "texts", "list")]
    named = sorted((name for name in found if name.lower() in CAPTIONS), key=lambda name: CAPTIONS.index(name.lower()))
    return named + [name for name in found if name.lower().startswith(CAPTION_STARTS) and name not in named]


def texts(row: dict[str, Any], names: list[str]) -> list[str]:
    """Collect a row's distinct, non-empty captions in order."""
    values = [row.get(name) for name in names]
    flat = [each for value in values for each in (value if isinstance(value, list) else [value])]
    return [text for text in dict.fromkeys(clean(each) for each in flat) if text]


def addressed(tree: Tree, path: str, uri: str, row: dict[str, Any], column: str, alt: str) -> Picture | Fault:
    """Make the picture at the row's address: a file of the source, a data: URI, or one still to be fetched.

    A Fault instead when the row has no address. Raises SourceError when the place stops answering.
    """
    reference = row.get(column)
    if not isinstance(reference, str) or not reference.strip():
        detail = f"expected an address in column '{column}', found {reference!r:.60}"
        return Fault(uri, "bad_record", detail)
    link = resolve(tree, path, reference)
    if link.fault or link.data:
        return Picture(0, link.url, alt, link.data, link.fault)
    return picture_of_file(tree, link.paths[0], tree.read(link.paths[0]), 0, link.url, alt)


def document(uri: str, row: dict[str, Any], pictures: list[Picture], words: list[str], used: list[str]) -> Document:
    """Make the row's document: pictures, then captions; every other column is metadata."""
    about = as_storable({name: value for name, value in row.items() if name not in used})
    return Document(uri, clean(row.get("title")), about, (*pictures, *(Text(text) for text in words)))
