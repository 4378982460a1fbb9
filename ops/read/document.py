"""Declare what formats yield (documents, pictures, texts, units) and what a format must do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ops.fault import Fault
from ops.read.places.tree import Entry, Place, Tree


@dataclass(frozen=True)
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


def shown_file(tree: Tree, path: str, content: bytes | Fault, position: int, url: str, alt_text: str) -> Picture:
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


class Claim(NamedTuple):
    """What a format takes of a tree: its units, and the paths of every file that is read with them."""

    units: list[Unit]
    taken: set[str]


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

    def detect(self, tree: Tree, entries: list[Entry]) -> bool:
        """Whether any of the files is of this format, by content where the name does not decide."""
        ...

    def claim(self, tree: Tree, entries: list[Entry]) -> Claim:
        """Take the units of this format, and name every file that is read with them."""
        ...

    def read(self, tree: Tree, unit: Unit) -> Iterator[Document | Fault]:
        """Yield the documents of one unit in a fixed order, and a Fault for each that cannot be read."""
        ...
