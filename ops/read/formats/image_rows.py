"""Read tables of one document a row: lists of addresses, tables of image bytes, and RealSyn's release.

Nothing is fetched here: an image on the web becomes a Fault ``missing`` that keeps its address and the row's metadata.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from pairmill.catalog.terms import text_columns
from pairmill.ops.fault import Fault
from pairmill.ops.read.document import Document, Picture, Unit
from pairmill.ops.read.document_metadata import clean
from pairmill.ops.read.example import ADDRESS, CAPTION, Example, parquet_of, picture
from pairmill.ops.read.places.file_table import Entry, FileTable
from pairmill.ops.read.places.tree import Tree
from pairmill.ops.read.records import columns, tables

REAL = {"raw_image_url": ADDRESS, "text1": "One.", "text2": "Two.", "text3": "Three.", "syn_text": "Made."}


class UrlList:
    """Read rows of an address (url, image_url …) and any captions (TEXT, alt …), as LAION is released."""

    name = "url_list"
    turn = 70
    version = 1
    suffixes: frozenset[str] = tables.SUFFIXES
    expects = ".parquet, .csv, .tsv or .jsonl with a column 'url' and captions such as 'caption' or 'TEXT'"
    examples = (
        Example(
            "lists of addresses, LAION's columns and others: `.parquet .csv .tsv .jsonl`",
            "list.csv",
            lambda: {"list.csv": f"URL,TEXT\n{ADDRESS},{CAPTION}\n".encode()},
            links=1,
        ),
    )

    def claim(self, tree: Tree, files: FileTable) -> Iterator[Unit]:
        """Claim tables with a column of image addresses."""
        return tables.claimed(tree, files, columns.is_url_list, self.name)

    def read(self, tree: Tree, unit: Unit) -> Iterator[Document | Fault]:
        """Yield a document for each row of the unit, and a Fault for each that cannot be read."""
        return tables.documents(tree, unit, _of_address)


class ImageTable:
    """Read rows of image bytes: binary columns, or Hugging Face's ``{bytes, path}`` structs, one or a list a row."""

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
        return tables.claimed(tree, files, columns.is_image_table, self.name)

    def read(self, tree: Tree, unit: Unit) -> Iterator[Document | Fault]:
        """Yield a document for each row of a row group, and a Fault for each that cannot be read."""
        header = tables.header(tree, Entry(tables.path_of(tree, unit), 0, unit.etag))
        return tables.documents(tree, unit, partial(_of_bytes, header.columns if header else {}))


class RealSyn:
    """Read rows in RealSyn's released form, which export also writes: an address, real texts, a synthetic text.

    An export has up to five real texts, and holds the pictures too, in a column `image` of {bytes, path}. The synthetic
    text becomes metadata.
    """

    name = "realsyn"
    turn = 50
    version = 1
    suffixes: frozenset[str] = tables.SUFFIXES
    expects = ".parquet, .csv or .jsonl with the columns raw_image_url, text1, text2, text3, syn_text"
    examples = (
        Example(
            "RealSyn's release: `raw_image_url, text1, text2, text3, syn_text`",
            "realsyn.parquet",
            lambda: {"realsyn.parquet": parquet_of(REAL)},
            links=1,
        ),
    )

    def claim(self, tree: Tree, files: FileTable) -> Iterator[Unit]:
        """Claim tables with RealSyn's address column and a first text."""
        return tables.claimed(tree, files, {"raw_image_url", "text1"}.issubset, self.name)

    def read(self, tree: Tree, unit: Unit) -> Iterator[Document | Fault]:
        """Yield a document for each row of the unit, and a Fault for each that cannot be read."""
        return tables.documents(tree, unit, _of_realsyn)


def _of_address(tree: Tree, path: str, uri: str, row: dict[str, Any]) -> Document | Fault:
    """Build the document of a row of addresses."""
    # Detect the columns for each row: the fields of JSON lines may differ from line to line.
    kinds = {name: "texts" if isinstance(value, list) else "text" for name, value in row.items()}
    captions = columns.captions(kinds)
    words = columns.texts(row, captions)
    found = columns.addressed(tree, path, uri, row, columns.address(kinds) or "url", words[0] if words else "")
    return found if isinstance(found, Fault) else columns.document(uri, row, [found], words, captions)


def _of_bytes(kinds: dict[str, str], tree: Tree, path: str, uri: str, row: dict[str, Any]) -> Document | Fault:
    """Build the document of a row of image bytes; an image without bytes is read from the row's address.

    ``kinds`` are the kinds of the table's columns.
    """
    held, captions, address = columns.held(kinds), columns.captions(kinds), columns.address(kinds)
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


def _of_realsyn(tree: Tree, path: str, uri: str, row: dict[str, Any]) -> Document | Fault:
    """Build the document of a row in RealSyn's form; prefer the picture's bytes to its address."""
    words = columns.texts(row, list(text_columns.texts()))
    held = row.get("image")
    data = held.get("bytes") if isinstance(held, dict) else None
    if data:
        found = Picture(0, clean(row.get("raw_image_url")), "", bytes(data))
    else:
        found = columns.addressed(tree, path, uri, row, "raw_image_url", "")
    used = ["image", *text_columns.texts()]
    return found if isinstance(found, Fault) else columns.document(uri, row, [found], words, used)


FORMATS = (UrlList(), ImageTable(), RealSyn())
