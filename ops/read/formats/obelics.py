"""Read Parquet of interleaved documents in OBELICS' shape: one row per document, parallel lists of images and texts.

``images`` and ``texts`` are lists of equal length; at each position one of the two is null. An image is an address, a
path, or a struct of ``bytes`` and ``path``. The optional ``image_bytes`` (a parallel list of binary) may hold the
bytes. ``metadata`` (JSON text of a parallel list, or a list of JSON texts or structs) and ``general_metadata`` (JSON
text) are optional. The shape follows OBELICS (arXiv 2306.16527, section 3.4).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import IO, Any

import pyarrow.parquet as pq

from pairmill.catalog.terms.controls import printable
from pairmill.ops.fault import Fault
from pairmill.ops.read.document import Document, Picture, Text, Unit, picture_of_file
from pairmill.ops.read.document_metadata import as_storable, parsed
from pairmill.ops.read.example import ADDRESS, CAPTION, Example, parquet_of
from pairmill.ops.read.formats.image_folder import SUFFIXES as PICTURE_SUFFIXES
from pairmill.ops.read.page.links import resolve
from pairmill.ops.read.places.file_table import Entry, FileTable
from pairmill.ops.read.places.one_document import OneDocument
from pairmill.ops.read.places.tree import Tree
from pairmill.ops.read.records import columns, tables

SUFFIXES = frozenset(("parquet", "parq"))
COLUMNS = ("images", "texts", "image_bytes", "metadata", "general_metadata")
PARAGRAPHS = re.compile(r"\n\s*\n")


class Obelics:
    """Read OBELICS' Parquet files; one row group is a unit, one row a document."""

    name = "obelics"
    turn = 80
    version = 1
    suffixes: frozenset[str] = SUFFIXES
    expects = ".parquet tables with the list columns 'images' and 'texts'"
    examples = (
        Example(
            "OBELICS: Parquet of parallel lists",
            "obelics",
            lambda: {"obelics/train-00000-of-00001.parquet": parquet_of(_released())},
            links=1,
        ),
    )

    def claim(self, tree: Tree, files: FileTable) -> Iterator[Unit]:
        """Claim all Parquet files if one has OBELICS' columns, and the image files that their rows name.

        The footers of the files are read here. A Parquet file that cannot be read is claimed too: read() yields its
        fault.
        """
        if next(tables.shaped(tree, files, columns.is_interleaved), None) is None:
            return
        has_pictures = files.has(PICTURE_SUFFIXES)
        for entry in files.of(SUFFIXES):
            files.take(entry.path)
            yield from tables.units(tree, entry, self.name)
            for named in _named(tree, entry.path) if has_pictures else ():
                if Entry(named, 0, "").suffix in PICTURE_SUFFIXES:
                    files.take(named)

    def read(self, tree: Tree, unit: Unit) -> Iterator[Document | Fault]:
        """Yield a document for each row of a row group, and a Fault for each that cannot be read."""
        path, group = tables.path_of(tree, unit), unit.uri.rpartition("#row-group=")[2]
        try:
            with tree.open(path) as file:
                yield from _read_group(tree, path, file, int(group or 0))
        except FileNotFoundError:
            yield Fault(unit.uri, "missing", "no such file")
        except tables.BAD_PARQUET as error:
            yield Fault(unit.uri, "bad_record", f"not readable as Parquet: {error}")


def _read_group(tree: Tree, path: str, file: IO[bytes], group: int) -> Iterator[Document | Fault]:
    """Yield the documents and faults of one row group of an open file."""
    table = pq.ParquetFile(file)
    kinds = tables.kinds(table.schema_arrow)
    # Columns of single values are metadata of the document; other binary columns are not read.
    names = [name for name, kind in kinds.items() if name in COLUMNS or kind in ("text", "other")]
    missing = {"images", "texts"} - set(names)
    if missing:
        yield Fault(f"{tree.uri(path)}#row-group={group}", "bad_record", f"no column {sorted(missing)}")
        return
    for found in tables.batches(file, tree.uri(path), group, names):
        if isinstance(found, Fault):
            yield found
            continue
        first, batch = found
        for row in range(batch.num_rows):
            uri = f"{tree.uri(path)}#row={first + row}"
            try:
                yield _document(OneDocument(tree), path, uri, {name: batch.column(name)[row].as_py() for name in names})
            except UnicodeDecodeError as error:
                yield Fault(uri, "bad_encoding", f"a text is not UTF-8: {error}")
            except (ValueError, TypeError, KeyError) as error:
                yield Fault(uri, "bad_record", str(error))


def _document(tree: Tree, path: str, uri: str, row: dict[str, Any]) -> Document:
    """Build a row's document. Raises ValueError, KeyError or TypeError if the row has another shape."""
    images, texts, embedded = row["images"], row["texts"], row.get("image_bytes")
    if images is None or texts is None:
        raise ValueError("'images' or 'texts' is null")
    if embedded is None:
        embedded = [None] * len(images)
    if not len(images) == len(texts) == len(embedded):
        raise ValueError(
            f"the lists differ in length: {len(images)} images, {len(texts)} texts, {len(embedded)} image_bytes"
        )
    each = _each(row.get("metadata"), len(images))
    about = as_storable({name: value for name, value in row.items() if name not in COLUMNS})
    about |= as_storable(parsed(row.get("general_metadata")))
    shown = [said for said in each if said]
    about |= as_storable({"images": shown}) if shown else {}
    items: list[Picture | Text] = []
    position = 0
    for image, text, data, said in zip(images, texts, embedded, each, strict=True):
        if image is not None or data is not None:
            items.append(_picture(tree, path, uri, position, image, data, said))
            position += 1
        # OBELICS separates the paragraphs of one text by empty lines.
        blocks = (" ".join(block.split()) for block in PARAGRAPHS.split(printable(text or "")))
        items += [Text(block) for block in blocks if block]
    if not items:
        raise ValueError("the row holds neither a text nor an image")
    title = about.get("title")
    return Document(uri, printable(title) if isinstance(title, str) else "", about, tuple(items))


def _picture(
    tree: Tree, path: str, row: str, position: int, image: Any, data: bytes | None, said: dict[str, Any]
) -> Picture:
    """Build one image from the row's bytes, else from the file or address that the row names."""
    reference, held = (image.get("path"), image.get("bytes")) if isinstance(image, dict) else (image, None)
    data = data if data is not None else held
    address = printable(said["src"]) if isinstance(said.get("src"), str) else None
    alt = said.get("alt_text") or said.get("alt") or ""
    alt = " ".join(printable(str(alt)).split())
    if data is not None:
        url = str(reference or address or f"{row}&picture={position}")
        return Picture(position, url, alt, data, None if data else Fault(url, "empty", "no bytes"))
    if not reference:
        url = str(address or f"{row}&picture={position}")
        return Picture(position, url, alt, b"", Fault(url, "missing", "the row has neither bytes nor an address"))
    link = resolve(tree, path, str(reference))
    if link.fault or link.data:
        return Picture(position, link.url, alt, link.data, link.fault)
    found = [tree.read(candidate) for candidate in link.paths]
    for candidate, content in zip(link.paths, found, strict=True):
        if not isinstance(content, Fault):
            return picture_of_file(tree, candidate, content, position, tree.uri(candidate), alt)
    return Picture(position, link.url, alt, b"", next(content for content in found if isinstance(content, Fault)))


def _each(value: Any, n: int) -> list[dict[str, Any]]:
    """Parse the metadata of each list position; an empty dict where there is none."""
    whole = parsed(value)
    places = [parsed(place) for place in whole] if isinstance(whole, list) and len(whole) == n else [None] * n
    return [place if isinstance(place, dict) else {} for place in places]


def _named(tree: Tree, path: str) -> set[str]:
    """Collect the paths that the rows of a file name as images."""
    with tree.open(path) as file:
        try:
            table = pq.ParquetFile(file)
            leaves = [table.schema.column(index).path for index in range(len(table.schema))]
            # Read only the names, not the image bytes.
            wanted = [leaf for leaf in leaves if leaf.startswith("images.") and not leaf.endswith(".bytes")]
            named: set[str] = set()
            for batch in table.iter_batches(columns=wanted):
                for image in batch.column("images").flatten().to_pylist():
                    reference = image.get("path") if isinstance(image, dict) else image
                    named |= set(resolve(tree, path, str(reference)).paths) if reference else set()
        except tables.BAD_PARQUET:
            return set()
    return named


def _released() -> dict[str, object]:
    """Return a row as OBELICS is released: parallel lists with nulls, metadata as the JSON text of such a list."""
    about = {"document_url": "https://x.example/", "src": ADDRESS, "alt_text": CAPTION, "formatted_filename": "a"}
    return {
        "images": [ADDRESS, None],
        "metadata": json.dumps([about, None]),
        "general_metadata": json.dumps({"url": "https://x.example/", "warc_filename": "x.warc.gz"}),
        "texts": [None, "A first sentence."],
    }


FORMAT = Obelics()
