"""What every reader yields, and what every format is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ops.fault import Fault
from ops.read.places.tree import Entry, Place, Tree


@dataclass(frozen=True)
class Unit:
    """The smallest piece that is read at once: a page, a picture file, a row group of a table.

    ``uri`` is unique in the source; the unit must be read again when ``etag`` is no longer the same. ``size`` in bytes.
    """

    uri: str
    size: int
    etag: str
    format: str


@dataclass(frozen=True)
class Picture:
    """An image as the document shows it. ``position`` counts the pictures of a document in reading order from 0.

    ``data`` is empty exactly when ``fault`` says why the bytes could not be had. The bytes are not looked at here.
    ``place`` is where they can be read again, if anywhere.
    """

    position: int
    url: str
    alt_text: str
    data: bytes = field(repr=False)
    fault: Fault | None = None
    place: Place | None = None


def shown_file(tree: Tree, path: str, content: bytes | Fault, position: int, url: str, alt_text: str) -> Picture:
    """The picture in a file of the source; ``content`` is what reading it gave."""
    if isinstance(content, Fault):
        return Picture(position, url, alt_text, b"", content)
    return Picture(position, url, alt_text, content, place=tree.where(path))


@dataclass(frozen=True)
class Text:
    """A block of running text (a paragraph, a heading, a list item); white space is collapsed, never empty."""

    text: str


@dataclass(frozen=True)
class Document:
    """Text and pictures in reading order. ``metadata`` holds only what JSON can."""

    uri: str
    title: str
    metadata: dict[str, object]
    items: tuple[Picture | Text, ...]


class Claim(NamedTuple):
    """What a format takes of a tree: its units, and the paths of all files that are read with them."""

    units: list[Unit]
    taken: set[str]


class Format(Protocol):
    """One kind of source; see html_folder, image_folder and obelics."""

    name: str
    expects: str
    suffixes: frozenset[str]

    def detect(self, tree: Tree, entries: list[Entry]) -> bool:
        """Whether any of the files is of this kind, by content where the name does not tell."""
        ...

    def claim(self, tree: Tree, entries: list[Entry]) -> Claim: ...

    def read(self, tree: Tree, unit: Unit) -> Iterator[Document | Fault]: ...
