"""Read tables with one document per row: lists of addresses, tables of image bytes, and RealSyn's release.

Columns are recognised by the names that published datasets use. Nothing is fetched: an image on the web becomes a
Fault ``missing`` that keeps its address and the row's metadata.
"""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from pairmill.catalog.terms import text_columns
from pairmill.ops.fault import Fault
from pairmill.ops.read import document
from pairmill.ops.read.document import Document, Picture, Text, Unit, clean, lines, picture_of_file
from pairmill.ops.read.formats.image_folder import readable
from pairmill.ops.read.page.links import resolve
from pairmill.ops.read.places.file_table import Entry, FileTable
from pairmill.ops.read.places.tree import Tree
from pairmill.ops.read.records import tables

# Names from LAION, COYO, DataComp, Conceptual RowCaptions and img2dataset, best first; matched without case.
ADDRESSES = ("url", "image_url", "img_url", "image_urls", "raw_image_url", "image_link", "photo_image_url")
HELD = ("image", "img", "picture", "photo", "jpg", "jpeg", "png", "webp", "bytes", "data", "content", "pixels")
CAPTIONS = ("caption", "captions", "text", "texts", "alt", "alt_text", "alttext", "description", "sentence",
            "sentences")  # fmt: skip
PICTURE_WORD = re.compile("image|img|picture|photo")
CAPTION_STARTS = ("caption_", "text_", "alt_text_", "sentence", "top_caption")


class UrlList:
    """Format for tables of image addresses (url, image_url …) with or without captions (TEXT, alt …), such as LAION."""

    name = "url_list"
    turn = 70
    version = 1
    suffixes: frozenset[str] = tables.SUFFIXES
    expects = ".parquet, .csv, .tsv or .jsonl with a column 'url' and captions such as 'caption' or 'TEXT'"

    def claim(self, tree: Tree, files: FileTable) -> Iterator[Unit]:
        """Claim tables with a column of image addresses."""
        return tables.claim_tables(tree, files, is_url_list, self.name)

    def read(self, tree: Tree, unit: Unit) -> Iterator[Document | Fault]:
        """Yield a document for each row of the unit, and a Fault for each that cannot be read."""
        return tables.documents(tree, unit, _of_address)


class ImageTable:
    """Format for Parquet tables of image bytes: binary columns, or Hugging Face's ``{bytes, path}`` structs."""

    name = "image_table"
    turn = 60
    version = 1
    suffixes: frozenset[str] = tables.PARQUET
    expects = ".parquet with pictures in a binary column such as 'image', or a struct of 'bytes' and 'path'"

    def claim(self, tree: Tree, files: FileTable) -> Iterator[Unit]:
        """Claim Parquet tables with a column of image bytes."""
        return tables.claim_tables(tree, files, is_image_table, self.name)

    def read(self, tree: Tree, unit: Unit) -> Iterator[Document | Fault]:
        """Yield a document for each row of a row group, and a Fault for each that cannot be read."""
        header = tables.header(tree, Entry(tables.path_of(tree, unit), 0, unit.etag))
        kinds = header.columns if header else {}
        columns = held_columns(kinds), caption_columns(kinds), address_column(kinds)
        return tables.documents(tree, unit, partial(_of_bytes, *columns))


class RealSyn:
    """Format for tables in RealSyn's released form, which export also writes: an address, real texts, a synthetic text.

    An export has up to five texts, and the pictures in a column `image` of {bytes, path}. `syn_text` becomes metadata.
    """

    name = "realsyn"
    turn = 50
    version = 1
    suffixes: frozenset[str] = tables.SUFFIXES
    expects = ".parquet, .csv or .jsonl with the columns raw_image_url, text1, text2, text3, syn_text"

    def claim(self, tree: Tree, files: FileTable) -> Iterator[Unit]:
        """Claim tables with RealSyn's address column and a first text."""
        return tables.claim_tables(tree, files, {"raw_image_url", "text1"}.issubset, self.name)

    def read(self, tree: Tree, unit: Unit) -> Iterator[Document | Fault]:
        """Yield a document for each row of the unit, and a Fault for each that cannot be read."""
        return tables.documents(tree, unit, _of_realsyn)


def address_column(columns: Mapping[str, str]) -> str:
    """Return the name of a table's column of image addresses, '' if there is none; ``columns`` maps name -> kind."""
    lower = {name.lower(): name for name, kind in reversed(list(columns.items())) if kind == "text"}
    return next((lower[name] for name in ADDRESSES if name in lower), "")


def is_interleaved(kinds: Mapping[str, str]) -> bool:
    """Return whether a table has OBELICS' shape: parallel lists of images and texts."""
    return all(kinds.get(name) in ("texts", "helds", "list") for name in ("images", "texts"))


def is_url_list(kinds: Mapping[str, str]) -> bool:
    """Return whether a table has a column of image addresses, and not OBELICS' shape."""
    return bool(address_column(kinds)) and not is_interleaved(kinds)


def is_image_table(kinds: Mapping[str, str]) -> bool:
    """Return whether a table has a column of image bytes, and not OBELICS' shape."""
    return bool(held_columns(kinds)) and not is_interleaved(kinds)


def held_columns(columns: Mapping[str, str]) -> list[str]:
    """Return the columns that hold encoded image bytes: structs with bytes, or binary columns with an image's name."""
    binary = [name for name, kind in columns.items() if kind == "binary"]
    named = {name for name in binary if name.lower() in HELD or PICTURE_WORD.search(name.lower())}
    return [name for name, kind in columns.items() if kind in ("held", "helds") or name in named]


def caption_columns(columns: Mapping[str, str]) -> list[str]:
    """Return the caption columns, best first: those with a caption's name, then texts whose name begins like one."""
    found = [name for name, kind in columns.items() if kind in ("text", "texts", "list")]
    named = sorted(
        (name for name, kind in columns.items() if name.lower() in CAPTIONS and kind not in ("held", "helds")),
        key=lambda name: CAPTIONS.index(name.lower()),
    )
    return named + [name for name in found if name.lower().startswith(CAPTION_STARTS) and name not in named]


def collect_texts(row: dict[str, Any], names: list[str]) -> list[str]:
    """Return the distinct lines of a row's captions, in the order of the columns ``names``."""
    return list(dict.fromkeys(line for name in names for line in lines(row.get(name))))


class RowCaptions(NamedTuple):
    """Captions of a row: the first as ``alt`` text, the distinct lines of all, and the columns that are not text."""

    alt: str
    words: list[str]
    unread: list[str]


def captions_of(row: dict[str, Any], names: list[str]) -> RowCaptions:
    """Return the captions in the columns ``names`` of a row; bytes are decoded like a caption file."""
    texts = {name: _as_text(row.get(name)) for name in names}
    unread = [name for name, found in texts.items() if not _is_text(found)]
    return RowCaptions(document.first_text(*texts.values()), collect_texts(texts, names), unread)


def _as_text(value: Any) -> Any:
    """Decode bytes; NaN, by which pandas says that there is no text, becomes None. Other values are unchanged."""
    if isinstance(value, bytes):
        text = readable("", value)
        return text if isinstance(text, str) else value if text.reason != "empty" else None
    return None if isinstance(value, float) and value != value else value


def _is_text(value: Any) -> bool:
    """Return whether a caption can be read: a text, a list of texts, or none."""
    return all(each is None or isinstance(each, str) for each in (value if isinstance(value, list) else [value]))


def unread_captions(uri: str, row: dict[str, Any], names: list[str]) -> list[Fault]:
    """Return a Fault for each caption column in ``names`` whose value is no text, or bytes that are no text."""
    no_text = {name: "bytes that are no text" for name in names if isinstance(row[name], bytes)}
    other = "no text but {}: its captions are not read; store it as text or a list of texts"
    return [
        Fault(
            uri,
            "bad_encoding" if name in no_text else "bad_record",
            f"{tables.UNREAD} '{name}' is {no_text.get(name) or other.format(type(row[name]).__name__)}",
        )
        for name in names
    ]


def read_address(tree: Tree, path: str, uri: str, row: dict[str, Any], column: str, alt: str) -> Picture | Fault:
    """Return the Picture for the address in a row's ``column``: a file of the source, a data: URI, or a link to fetch.

    Return a Fault if the row has no address. Raises SourceError if the storage does not respond.
    """
    reference = row.get(column)
    if not isinstance(reference, str) or not reference.strip():
        return Fault(uri, "bad_record", f"expected an address in column '{column}', found {reference!r:.60}")
    return read_reference(tree, path, reference, 0, alt)


def read_reference(tree: Tree, path: str, reference: str, position: int, alt: str) -> Picture:
    """Return the Picture of a file beside the table at ``path``, of a data: URI, or of a link to fetch later."""
    link = resolve(tree, path, reference)
    if link.fault or link.data:
        return Picture(position, link.url, alt, link.data, link.fault)
    there = link.paths[0]
    if len(link.paths) > 1:  # looked for only then: it is a request on S3
        there = next(filter(tree.exists, link.paths), there)
    return picture_of_file(tree, there, tree.read(there), position, link.url, alt)


def row_document(uri: str, row: dict[str, Any], pictures: list[Picture], words: list[str], used: list[str]) -> Document:
    """Return a row's document: images, then captions; columns that are not in ``used`` become metadata."""
    about = document.as_storable({name: value for name, value in row.items() if name not in used})
    return Document(uri, clean(row.get("title")), about, (*pictures, *(Text(text) for text in words)))


def _of_address(tree: Tree, path: str, uri: str, row: dict[str, Any]) -> tables.Built:
    """Build the document of a row of addresses, and the faults of captions that are no text."""
    # Detect the columns for each row: the fields of JSON lines may differ from line to line.
    kinds = {name: "texts" if isinstance(value, list) else "text" for name, value in row.items()}
    captions = caption_columns(kinds)
    said = captions_of(row, captions)
    found = read_address(tree, path, uri, row, address_column(kinds) or "url", said.alt)
    if isinstance(found, Fault):
        return found
    used = [name for name in captions if name not in said.unread]
    return [row_document(uri, row, [found], said.words, used), *unread_captions(uri, row, said.unread)]


def _of_bytes(
    held: list[str], captions: list[str], address: str, tree: Tree, path: str, uri: str, row: dict[str, Any]
) -> tables.Built:
    """Build a row's document, read from its address or path without bytes ``held``, and the faults of its captions."""
    alt, words, unread = captions_of(row, captions)
    images = [each for name in held for each in (row[name] if isinstance(row[name], list) else [row[name]])]
    url = clean(row.get(address)) if len(images) == 1 else ""
    pictures: list[Picture] = []
    for image in images:
        data, name = (image.get("bytes"), image.get("path")) if isinstance(image, dict) else (image, None)
        where = url or (f"{uri}&path={clean(name)}" if clean(name) else f"{uri}&picture={len(pictures)}")
        if data:
            pictures.append(Picture(len(pictures), where, alt, bytes(data)))
        elif data is None and url:
            found = read_address(tree, path, uri, row, address, alt)
            pictures += [found] if isinstance(found, Picture) else []
        elif data is None and clean(name):
            pictures.append(read_reference(tree, path, str(name), len(pictures), alt))
        else:
            reason, detail = ("missing", "the row has no bytes") if data is None else ("empty", "no bytes")
            pictures.append(Picture(len(pictures), where, alt, b"", Fault(where, reason, detail)))
    if not pictures and not words:
        return Fault(uri, "bad_record", f"neither a picture in {held} nor a caption")
    used = [*held, *(name for name in captions if name not in unread)]
    return [row_document(uri, row, pictures, words, used), *unread_captions(uri, row, unread)]


def _of_realsyn(tree: Tree, path: str, uri: str, row: dict[str, Any]) -> Document | Fault:
    """Build the document of a row in RealSyn's form; prefer the picture's bytes to its address."""
    words = collect_texts(row, list(text_columns.texts()))
    held = row.get("image")
    data = held.get("bytes") if isinstance(held, dict) else None
    if data:
        found = Picture(0, clean(row.get("raw_image_url")), "", bytes(data))
    else:
        found = read_address(tree, path, uri, row, "raw_image_url", "")
    used = ["image", *text_columns.texts()]
    return found if isinstance(found, Fault) else row_document(uri, row, [found], words, used)


FORMATS = (UrlList(), ImageTable(), RealSyn())
