"""Read Parquet of interleaved documents in OBELICS' shape: one row per document, parallel lists of images and texts.

``images`` and ``texts`` are lists of equal length; at each position one of the two is null. An image is an address, a
path, or a struct of ``bytes`` and ``path``. The optional ``image_bytes`` (a parallel list of binary) may hold the
bytes. ``metadata`` (JSON text of a parallel list, or a list of JSON texts or structs) and ``general_metadata`` (JSON
text) are optional. The shape follows OBELICS (arXiv 2306.16527, section 3.4).
"""

import re
from collections.abc import Iterator
from typing import Any

import pyarrow.parquet as pq

from pairmill.catalog.terms.controls import printable
from pairmill.ops.fault import Fault, in_words
from pairmill.ops.read.document import Document, Picture, Text, Unit, as_storable, clean, parse_json, picture_of_file
from pairmill.ops.read.formats.image_folder import SUFFIXES as PICTURE_SUFFIXES
from pairmill.ops.read.formats.image_rows import is_interleaved
from pairmill.ops.read.page.links import resolve
from pairmill.ops.read.places.file_table import Entry, FileTable
from pairmill.ops.read.places.tree import Tree
from pairmill.ops.read.records import tables

COLUMNS = ("images", "texts", "image_bytes", "metadata", "general_metadata")
# Between the paragraphs of one text; the second is a mark that the release left in, where documents were joined.
PARAGRAPHS = re.compile(r"\n\s*\n|END_OF_DOCUMENT_TOKEN_TO_BE_REPLACED")


class Obelics:
    """Format for OBELICS' Parquet files; one row group is a unit, one row a document."""

    name = "obelics"
    turn = 80
    version = 1
    suffixes: frozenset[str] = tables.PARQUET
    expects = ".parquet tables with the list columns 'images' and 'texts'"

    def claim(self, tree: Tree, files: FileTable) -> Iterator[Unit]:
        """Claim all Parquet files if one has OBELICS' columns, and the image files that their rows name.

        Reads the footers. A Parquet file that cannot be read is claimed too: read() yields its fault.
        """
        if next(tables.tables_of_shape(tree, files, is_interleaved), None) is None:
            return
        has_pictures = files.has(PICTURE_SUFFIXES)
        for entry in files.of(self.suffixes):
            files.take(entry.path)
            yield from tables.units(tree, entry, self.name)
            named = _image_paths(tree, entry.path) if has_pictures else ()
            files.take(*(path for path in named if Entry(path, 0, "").suffix in PICTURE_SUFFIXES))

    def read(self, tree: Tree, unit: Unit) -> Iterator[Document | Fault]:
        """Yield a document for each row of a row group, and a Fault for each that cannot be read."""
        return tables.documents(tree, unit, _build, _choose_columns)


def _choose_columns(kinds: dict[str, str]) -> list[str]:
    """List the columns to read. Raises ValueError without `images` and `texts`."""
    if missing := {"images", "texts"} - set(kinds):
        raise ValueError(f"no column {sorted(missing)}")
    # Columns of single values are metadata of the document; other binary columns are not read.
    return [name for name, kind in kinds.items() if name in COLUMNS or kind in ("text", "other")]


def _build(tree: Tree, path: str, uri: str, row: dict[str, Any]) -> Document | Fault:
    """Build a row's document; return a Fault if the row has another shape."""
    try:
        return _document(tree, path, uri, row)
    except (ValueError, TypeError, KeyError) as error:
        return Fault(uri, "bad_record", in_words(error))


def _document(tree: Tree, path: str, uri: str, row: dict[str, Any]) -> Document:
    """Build a row's document. Raises ValueError, KeyError or TypeError if the row has another shape."""
    images, texts, embedded = row["images"], row["texts"], row.get("image_bytes")
    if images is None or texts is None:
        raise ValueError("'images' or 'texts' is null")
    if embedded is None:
        embedded = [None] * len(images)
    if not len(images) == len(texts) == len(embedded):
        lengths = f"{len(images)} images, {len(texts)} texts, {len(embedded)} image_bytes"
        raise ValueError(f"the lists differ in length: {lengths}")
    each = _each(row.get("metadata"), len(images))
    about = as_storable({name: value for name, value in row.items() if name not in COLUMNS})
    about |= as_storable(parse_json(row.get("general_metadata")))
    if shown := [said for said in each if said]:
        about |= as_storable({"images": shown})
    items: list[Picture | Text] = []
    position = 0
    for image, text, data, said in zip(images, texts, embedded, each, strict=True):
        if image is not None or data is not None:
            items.append(_picture(tree, path, uri, position, image, data, said))
            position += 1
        # OBELICS separates the paragraphs of one text by empty lines.
        blocks = map(clean, PARAGRAPHS.split(printable(text or "")))
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
    alt = clean(str(said.get("alt_text") or said.get("alt") or ""))
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
    whole = parse_json(value)
    places = [parse_json(place) for place in whole] if isinstance(whole, list) and len(whole) == n else [None] * n
    return [place if isinstance(place, dict) else {} for place in places]


def _image_paths(tree: Tree, path: str) -> set[str]:
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


FORMATS = (Obelics(),)
