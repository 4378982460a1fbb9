"""Read Parquet tables that hold image bytes: binary columns, or Hugging Face's ``{bytes, path}`` structs.

A struct column may hold one image or a list of images per row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pairmill.ops.fault import Fault
from pairmill.ops.read.document import Document, Picture, Unit
from pairmill.ops.read.document_metadata import clean
from pairmill.ops.read.example import Example, parquet_of, picture
from pairmill.ops.read.places.file_table import Entry, FileTable
from pairmill.ops.read.places.tree import Tree
from pairmill.ops.read.records import columns, tables


class ImageTable:
    """Read each table row as a document: its images, then its captions; every other column is metadata."""

    name = "image_table"
    turn = 60
    version = 1
    suffixes: frozenset[str] = tables.PARQUET
    expects = ".parquet with pictures in a binary column such as 'image', or a struct of 'bytes' and 'path'"
    examples = (
        Example(
            "tables of pictures: Parquet with `{bytes, path}` or binary columns",
            "train.parquet",
            lambda: {"train.parquet": parquet_of({"image": {"bytes": picture(), "path": "a"}})},
            images=1,
        ),
    )

    def claim(self, tree: Tree, files: FileTable) -> Iterator[Unit]:
        """Claim Parquet tables with a column of image bytes."""
        return tables.claimed(tree, files, _fits, self.name)

    def read(self, tree: Tree, unit: Unit) -> Iterator[Document | Fault]:
        """Yield a document for each row of a row group, and a Fault for each that cannot be read."""
        path = tables.path_of(tree, unit)
        header = tables.header(tree, Entry(path, 0, unit.etag))
        known = header.columns if header else {}
        held, captions, address = columns.held(known), columns.captions(known), columns.address(known)
        for found in tables.rows(tree, unit):
            yield found if isinstance(found, Fault) else _document(tree, path, *found, held, captions, address)


def _fits(kinds: dict[str, str]) -> bool:
    """Return whether a table's columns hold image bytes but not OBELICS' parallel lists."""
    # Parallel lists of images and texts are an interleaved document: see obelics.
    return bool(columns.held(kinds)) and not columns.is_interleaved(kinds)


def _document(
    tree: Tree, path: str, uri: str, row: dict[str, Any], held: list[str], captions: list[str], address: str
) -> Document | Fault:
    """Build a row's document; an image without bytes is read from the row's address."""
    words = columns.texts(row, captions)
    alt = words[0] if words else ""
    images = [each for name in held for each in (row[name] if isinstance(row[name], list) else [row[name]])]
    url = clean(row.get(address)) if len(images) == 1 else ""
    pictures: list[Picture] = []
    for image in images:
        data, name = (image.get("bytes"), image.get("path")) if isinstance(image, dict) else (image, None)
        where = url or (f"{uri}&path={clean(name)}" if clean(name) else f"{uri}&picture={len(pictures)}")
        if data:
            pictures.append(Picture(len(pictures), where, alt, bytes(data)))
        elif data is None and url:
            found = columns.addressed(tree, path, uri, row, address, alt)
            pictures += [found] if isinstance(found, Picture) else []
        else:
            reason, detail = ("missing", "the row has no bytes") if data is None else ("empty", "no bytes")
            pictures.append(Picture(len(pictures), where, alt, b"", Fault(where, reason, detail)))
    if not pictures and not words:
        return Fault(uri, "bad_record", f"neither a picture in {held} nor a caption")
    return columns.document(uri, row, pictures, words, [*held, *captions])


FORMAT = ImageTable()
