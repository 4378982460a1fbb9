"""Define what formats yield (documents, images, texts, metadata, units) and the protocol of a format."""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from urllib.parse import quote

from pairmill.catalog.terms.controls import printable, printable_json
from pairmill.catalog.terms.secrets import without_users
from pairmill.ops.fault import Fault
from pairmill.ops.read.places.file_table import FileTable
from pairmill.ops.read.places.tree import Place, Tree

WEB = ("https://", "http://", "ftp://")
CONTROL = re.compile(r"[\0-\x1f\x7f-\x9f]")
# The largest metadata value to store, in characters of JSON: a page of EXIF must not outgrow its image.
MAX_TEXT = 65_536
# Lists, objects and values of one JSON text: each takes some 100 bytes, and twice that where it is stored.
MOST_VALUES = 1_000_000
# Sizes in bytes of MD5, SHA-1, SHA-256 and SHA-512 digests, which tables may hold as binary.
DIGESTS = (16, 20, 32, 64)


@dataclass(frozen=True, slots=True)
class Unit:
    """The smallest piece that is read at once: a page, an image file, a row group of a table."""

    uri: str  # unique in the source
    size: int  # in bytes
    etag: str  # a unit whose etag has changed must be read again
    format: str


@dataclass(frozen=True)
class Picture:
    """An image of a document; ``data`` is empty exactly when ``fault`` gives the reason."""

    position: int  # from 0 in reading order
    url: str
    alt_text: str
    data: bytes = field(repr=False)  # encoded, not validated here
    fault: Fault | None = None
    place: Place | None = None  # where the bytes can be read again


def picture_of_file(tree: Tree, path: str, content: bytes | Fault, position: int, url: str, alt_text: str) -> Picture:
    """Return the Picture of a source file whose ``content`` has been read, bytes or a Fault."""
    if isinstance(content, Fault):
        return Picture(position, url, alt_text, b"", content)
    return Picture(position, url, alt_text, content, place=tree.where(path))


@dataclass(frozen=True)
class Text:
    """A block of running text (a paragraph, a heading, a list item): never empty, white space collapsed."""

    text: str


@dataclass(frozen=True)
class Document:
    """A document: its texts and images in reading order. ``metadata`` holds only values that JSON can represent."""

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
    return replace(document, uri=web_address(document.uri), title=printable(document.title), items=tuple(items))


def _storable_picture(picture: Picture) -> Picture:
    """Remove control codes from the alt text, and user and password from the addresses."""
    url, alt, fault = web_address(picture.url), printable(picture.alt_text), picture.fault
    if url == picture.url and alt == picture.alt_text:
        return picture
    return replace(picture, url=url, alt_text=alt, fault=fault and fault.about(web_address(fault.item)))


def web_address(uri: str) -> str:
    """Return a web address without user and password, its control codes percent-encoded; other URIs unchanged."""
    if not uri.lower().startswith(WEB):
        return uri
    return without_users(uri if uri.isprintable() else CONTROL.sub(lambda found: quote(found[0]), uri))


def parse_json(value: Any) -> Any:
    """Parse JSON text; return None if it is invalid, and a value that is not text unchanged. Never raises."""
    if not isinstance(value, str | bytes):
        return value
    if exceeds_value_limit(value):
        return None
    try:
        return json.loads(value, parse_constant=lambda _: None)  # NaN is not JSON
    except (ValueError, RecursionError):
        return None


def exceeds_value_limit(text: str | bytes) -> bool:
    """Return whether JSON text may hold over MOST_VALUES values: `[[],[],…]` takes 21 times the memory when parsed."""
    if len(text) <= MOST_VALUES:
        return False
    if isinstance(text, bytes):
        return text.count(b",") + text.count(b"[") + text.count(b"{") > MOST_VALUES
    return text.count(",") + text.count("[") + text.count("{") > MOST_VALUES


def as_storable(value: Any) -> dict[str, object]:
    """Return a copy of a dict that JSON can store; {} for any other value.

    Dates become text, digests become hex, NaN becomes null; other bytes, and values over MAX_TEXT, are dropped.
    """
    if not isinstance(value, dict):
        return {}
    kept: dict[str, object] = {}
    for name, each in value.items():
        if not isinstance(each, bytes | bytearray):
            kept[str(name)] = each
        elif len(each) in DIGESTS:
            kept[str(name)] = each.hex()
    if all(_is_plain(name) and _is_plain(each) for name, each in kept.items()):
        return kept  # the usual row of a table: all values are JSON already
    try:
        told = json.dumps(kept, default=lambda each: None if isinstance(each, bytes) else str(each), ensure_ascii=False)
        text = printable_json(told)
    except (ValueError, RecursionError):
        return {}
    found = parse_json(text)
    return {name: each for name, each in found.items() if _is_small(each)} if isinstance(found, dict) else {}


def _is_plain(value: object) -> bool:
    """Return whether ``value`` is a short printable text, an int, a bool, a finite float or None."""
    if isinstance(value, str):
        return len(value) <= MAX_TEXT // 6 and printable(value) == value
    return value is None or type(value) in (int, bool) or (type(value) is float and math.isfinite(value))


def clean(value: object) -> str:
    """Return text as one line: white space collapsed, control codes, lone surrogates removed; '' for other values."""
    return " ".join(printable(value).split()) if isinstance(value, str) else ""


def lines(value: object) -> list[str]:
    """Return the non-empty lines of a text or a list of texts, each cleaned as by `clean`; [] for other values.

    A line break ends a sentence, so captions are read line by line.
    """
    texts = value if isinstance(value, list) else [value]
    return [line for text in texts if isinstance(text, str) for each in text.splitlines() if (line := clean(each))]


def first_text(*values: object) -> str:
    """Return the first of ``values`` (texts or lists of texts) that is not empty after `clean`, cleaned; else ''."""
    texts = (text for value in values for text in (value if isinstance(value, list) else [value]))
    return next(filter(None, map(clean, texts)), "")


def _is_small(value: object) -> bool:
    """Return whether the JSON of ``value`` has at most MAX_TEXT characters; numbers always pass."""
    return not isinstance(value, str | list | dict) or len(json.dumps(value)) <= MAX_TEXT


class Format(Protocol):
    """The protocol of an input format; the shortest ones are in image_rows.

    Formats claim their files in the order of ``turn``: a format that recognises its files by content comes before a
    format that accepts whatever is left.
    """

    name: str
    turn: int
    version: int  # increase it when files yield other documents, rare ones aside: their units are then read again
    expects: str  # describes the format in error messages
    suffixes: frozenset[str]  # the file extensions that suggest it

    def claim(self, tree: Tree, files: FileTable) -> Iterator[Unit]:
        """Yield this format's units, and take every file that they read from ``files``.

        Decide by content if the file name does not decide.
        """
        ...

    def read(self, tree: Tree, unit: Unit) -> Iterator[Document | Fault]:
        """Yield the documents of one unit in a fixed order, and a Fault for each that cannot be read."""
        ...
