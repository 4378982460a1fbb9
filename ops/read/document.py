"""Define the records that formats yield (documents, images, texts, units) and the protocol of a format."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol
from urllib.parse import quote

from pairmill.catalog.terms.controls import printable
from pairmill.catalog.terms.secrets import without_users
from pairmill.ops.fault import Fault
from pairmill.ops.read.example import Example
from pairmill.ops.read.places.file_table import FileTable
from pairmill.ops.read.places.tree import Place, Tree

WEB = ("https://", "http://", "ftp://")
CONTROL = re.compile(r"[\0-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class Unit:
    """The smallest piece that is read at once: a page, an image file, a row group of a table.

    ``uri`` is unique in the source; ``size`` is in bytes. A unit whose ``etag`` has changed must be read again.
    """

    uri: str
    size: int
    etag: str
    format: str


@dataclass(frozen=True)
class Picture:
    """An image of a document; ``position`` counts from 0 in reading order.

    ``data`` holds the encoded bytes, not validated here; it is empty exactly when ``fault`` says why the bytes are
    missing. ``place`` is where the bytes can be read again, or None.
    """

    position: int
    url: str
    alt_text: str
    data: bytes = field(repr=False)
    fault: Fault | None = None
    place: Place | None = None


def picture_of_file(tree: Tree, path: str, content: bytes | Fault, position: int, url: str, alt_text: str) -> Picture:
    """Build a Picture from a file of the source; ``content`` is the result of reading the file."""
    if isinstance(content, Fault):
        return Picture(position, url, alt_text, b"", content)
    return Picture(position, url, alt_text, content, place=tree.where(path))


@dataclass(frozen=True)
class Text:
    """A block of running text (a paragraph, a heading, a list item): never empty, white space collapsed."""

    text: str


@dataclass(frozen=True)
class Document:
    """Texts and images in reading order. ``metadata`` holds only values that JSON can represent."""

    uri: str
    title: str
    metadata: dict[str, object]
    items: tuple[Picture | Text, ...]


def storable_document(document: Document) -> Document:
    """Return a copy of a document without control codes in texts, and without user or password in web addresses.

    Call this for every format, after HTML entities and JSON escapes are decoded. Paths stay unchanged, because files
    are found by them. Texts that become empty are dropped.
    """
    items: list[Picture | Text] = []
    for item in document.items:
        if isinstance(item, Picture):
            items.append(_storable_picture(item))
        elif (kept := printable(item.text)).strip():
            items.append(Text(kept))
    title = printable(document.title)
    return replace(document, uri=web_address(document.uri), title=title, items=tuple(items))


def _storable_picture(picture: Picture) -> Picture:
    """Remove control codes from the alt text, and user and password from the addresses."""
    url, alt, fault = web_address(picture.url), printable(picture.alt_text), picture.fault
    if url == picture.url and alt == picture.alt_text:
        return picture
    return replace(picture, url=url, alt_text=alt, fault=fault and fault.about(web_address(fault.item)))


def web_address(uri: str) -> str:
    """Strip user and password from a web address and percent-encode its control codes; return other URIs unchanged."""
    if not uri.lower().startswith(WEB):
        return uri
    return without_users(uri if uri.isprintable() else CONTROL.sub(lambda found: quote(found[0]), uri))


class Format(Protocol):
    """The protocol of an input format; the shortest examples are in image_rows.

    Formats claim their files in the order of ``turn``: a format that recognises its files by content comes before a
    format that accepts whatever is left. Increase ``version`` when a file yields other documents than before: its units
    are then read again. ``expects`` describes the format in error messages. ``suffixes`` are the file extensions that
    suggest it. Of ``examples`` README's table, the tests, the fuzzer and the golden values are made.
    """

    name: str
    turn: int
    version: int
    expects: str
    suffixes: frozenset[str]
    examples: tuple[Example, ...]

    def claim(self, tree: Tree, files: FileTable) -> Iterator[Unit]:
        """Yield this format's units, and take every file that they read; decide by content where the name does not."""
        ...

    def read(self, tree: Tree, unit: Unit) -> Iterator[Document | Fault]:
        """Yield the documents of one unit in a fixed order, and a Fault for each that cannot be read."""
        ...
