"""Declare what formats yield (documents, pictures, texts, units) and what a format must do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol
from urllib.parse import quote

from pairmill.catalog.terms.controls import printable
from pairmill.catalog.terms.secrets import without_users
from pairmill.ops.fault import Fault
from pairmill.ops.read.places.file_table import FileTable
from pairmill.ops.read.places.tree import Place, Tree

WEB = ("https://", "http://", "ftp://")
CONTROL = re.compile(r"[\0-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class Unit:
    """The smallest piece that is read at once: a page, a picture file, a row group of a table.

    ``uri`` is unique in the source; ``size`` in bytes; a unit whose ``etag`` has changed must be read again.
    """

    uri: str
    size: int
    etag: str
    format: str


@dataclass(frozen=True)
class Picture:
    """A picture of a document; ``position`` counts from 0 in reading order.

    ``data`` are the encoded bytes, not looked at here; they are empty exactly when ``fault`` says why they could not be
    had. ``place`` is where they can be read again, None for nowhere.
    """

    position: int
    url: str
    alt_text: str
    data: bytes = field(repr=False)
    fault: Fault | None = None
    place: Place | None = None


def picture_of_file(tree: Tree, path: str, content: bytes | Fault, position: int, url: str, alt_text: str) -> Picture:
    """Make a Picture of a source's file; ``content`` is what reading it gave."""
    if isinstance(content, Fault):
        return Picture(position, url, alt_text, b"", content)
    return Picture(position, url, alt_text, content, place=tree.where(path))


@dataclass(frozen=True)
class Text:
    """A block of running text (a paragraph, a heading, a list item), never empty, white space collapsed."""

    text: str


@dataclass(frozen=True)
class Document:
    """Texts and pictures in reading order. ``metadata`` holds only what JSON can hold."""

    uri: str
    title: str
    metadata: dict[str, object]
    items: tuple[Picture | Text, ...]


def storable_document(document: Document) -> Document:
    """Return a document whose texts hold no control codes, and whose web addresses hold no user and no password.

    Whatever its format, and after a page's entities and JSON's escapes are undone. A path stays as it is: it is what
    the file is found by.
    """
    items = tuple(
        _storable_text(each) if isinstance(each, Text) else _storable_picture(each) for each in document.items
    )
    uri = web_address(document.uri)
    return replace(document, uri=uri, title=printable(document.title), items=tuple(each for each in items if each))


def _storable_text(text: Text) -> Text | None:
    kept = printable(text.text)
    return text if kept == text.text else Text(kept) if kept.strip() else None


def _storable_picture(picture: Picture) -> Picture:
    url, alt, fault = web_address(picture.url), printable(picture.alt_text), picture.fault
    if url == picture.url and alt == picture.alt_text:
        return picture
    return replace(picture, url=url, alt_text=alt, fault=fault and fault.about(web_address(fault.item)))


def web_address(uri: str) -> str:
    """Return a web address without user and password, its control codes percent-encoded; any other uri as it is."""
    if not uri.lower().startswith(WEB):
        return uri
    return without_users(uri if uri.isprintable() else CONTROL.sub(lambda found: quote(found[0]), uri))


class Format(Protocol):
    """What a format must do; the shortest examples are realsyn and url_list.

    Formats take their files in the order of ``turn``: who is sure by content goes before who takes whatever is left.
    ``version`` counts up when a file gives other documents than before: what it gave is then read again.
    """

    name: str
    turn: int
    version: int
    expects: str
    suffixes: frozenset[str]

    def claim(self, tree: Tree, files: FileTable) -> Iterator[Unit]:
        """Yield the units of this format, and take every file that is read with them: by content where the name does
        not decide."""
        ...

    def read(self, tree: Tree, unit: Unit) -> Iterator[Document | Fault]:
        """Yield the documents of one unit in a fixed order, and a Fault for each that cannot be read."""
        ...
