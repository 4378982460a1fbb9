"""Recognise an image table's columns (address, bytes, captions) by the names that published datasets use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pairmill.ops.fault import Fault
from pairmill.ops.read.document import Document, Picture, Text, picture_of_file
from pairmill.ops.read.document_metadata import as_storable, clean
from pairmill.ops.read.page.links import resolve
from pairmill.ops.read.places.tree import Tree

# Names from LAION, COYO, DataComp, Conceptual Captions and img2dataset, best first; matched without case.
ADDRESSES = ("url", "image_url", "img_url", "image_urls", "raw_image_url", "image_link", "photo_image_url")
HELD = ("image", "img", "picture", "photo", "jpg", "jpeg", "png", "webp", "bytes", "data", "content", "pixels")
CAPTIONS = ("caption", "captions", "text", "texts", "alt", "alt_text", "alttext", "description", "sentence",
            "sentences")  # fmt: skip
PICTURE_WORD = re.compile("image|img|picture|photo")
CAPTION_STARTS = ("caption_", "text_", "alt_text_", "sentence", "top_caption")


def address(columns: Mapping[str, str]) -> str:
    """Return the name of the column of image addresses, '' if there is none."""
    lower = {name.lower(): name for name, kind in reversed(list(columns.items())) if kind == "text"}
    return next((lower[name] for name in ADDRESSES if name in lower), "")


def is_interleaved(kinds: Mapping[str, str]) -> bool:
    """Return whether a table has OBELICS' shape: parallel lists of images and texts."""
    return all(kinds.get(name) in ("texts", "helds", "list") for name in ("images", "texts"))


def is_url_list(kinds: Mapping[str, str]) -> bool:
    """Return whether a table has a column of image addresses, and not OBELICS' shape."""
    return bool(address(kinds)) and not is_interleaved(kinds)


def is_image_table(kinds: Mapping[str, str]) -> bool:
    """Return whether a table has a column of image bytes, and not OBELICS' shape."""
    return bool(held(kinds)) and not is_interleaved(kinds)


def held(columns: Mapping[str, str]) -> list[str]:
    """List the columns that hold encoded image bytes: structs with bytes, or binary columns with an image's name."""
    binary = [name for name, kind in columns.items() if kind == "binary"]
    named = {name for name in binary if name.lower() in HELD or PICTURE_WORD.search(name.lower())}
    return [name for name, kind in columns.items() if kind in ("held", "helds") or name in named]


def captions(columns: Mapping[str, str]) -> list[str]:
    """List the caption columns (single texts or lists of texts), best first."""
    found = [name for name, kind in columns.items() if kind in ("text", "texts", "list")]
    named = sorted((name for name in found if name.lower() in CAPTIONS), key=lambda name: CAPTIONS.index(name.lower()))
    return named + [name for name in found if name.lower().startswith(CAPTION_STARTS) and name not in named]


def texts(row: dict[str, Any], names: list[str]) -> list[str]:
    """Collect a row's distinct, non-empty captions, in the order of the columns ``names``."""
    values = [row.get(name) for name in names]
    flat = [each for value in values for each in (value if isinstance(value, list) else [value])]
    return [text for text in dict.fromkeys(clean(each) for each in flat) if text]


def addressed(tree: Tree, path: str, uri: str, row: dict[str, Any], column: str, alt: str) -> Picture | Fault:
    """Build the Picture for a row's address: a file of the source, a data: URI, or a link to fetch later.

    Return a Fault if the row has no address. Raises SourceError if the storage does not respond.
    """
    reference = row.get(column)
    if not isinstance(reference, str) or not reference.strip():
        return Fault(uri, "bad_record", f"expected an address in column '{column}', found {reference!r:.60}")
    link = resolve(tree, path, reference)
    if link.fault or link.data:
        return Picture(0, link.url, alt, link.data, link.fault)
    return picture_of_file(tree, link.paths[0], tree.read(link.paths[0]), 0, link.url, alt)


def document(uri: str, row: dict[str, Any], pictures: list[Picture], words: list[str], used: list[str]) -> Document:
    """Build a row's document: images, then captions; the columns that are not in ``used`` become metadata."""
    about = as_storable({name: value for name, value in row.items() if name not in used})
    return Document(uri, clean(row.get("title")), about, (*pictures, *(Text(text) for text in words)))
