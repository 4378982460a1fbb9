"""Read the HTML responses in WARC files, gzipped or not, as documents, with the images that the same file holds.

The format is ISO 28500, as Common Crawl, Heritrix, wget and browser crawlers write it. A file is a unit and is read in
two passes: the first finds every response, the second reads the pages. An image that the file does not hold is left for
a fetch.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import IO
from urllib.parse import urldefrag, urljoin, urlsplit

from pairmill.ops.fault import Fault
from pairmill.ops.read.document import Document, Picture, Text, Unit
from pairmill.ops.read.example import ADDRESS, PAGE, Example, picture
from pairmill.ops.read.formats.html_folder import fault_of
from pairmill.ops.read.page import page, reading_order
from pairmill.ops.read.page.links import NOT_FETCHED, REMOTE, resolve
from pairmill.ops.read.page.picture_reference import PictureReference
from pairmill.ops.read.places.file_table import Entry, FileTable
from pairmill.ops.read.places.one_document import DOCUMENT_BYTES
from pairmill.ops.read.places.tree import LocalTree, Tree
from pairmill.ops.read.places.unpack import seekable
from pairmill.ops.read.records.warc_records import Record, body, kind_of, records

PAGES = ("text/html", "application/xhtml+xml")
# Servers also send images with these content types.
UNTOLD = ("", "application/octet-stream", "binary/octet-stream")
NOWHERE = LocalTree("/nowhere")


class Warc:
    """Read the HTML pages of WARC files in file order; a document's metadata holds its address, date and record id."""

    name = "warc"
    turn = 10
    version = 1
    suffixes: frozenset[str] = frozenset(("warc", "gz"))
    expects = ".warc or .warc.gz with HTML responses"
    examples = (
        Example(
            "Common Crawl: `.warc .warc.gz`, pages and what pictures the same file holds",
            "crawl.warc.gz",
            lambda: {
                "crawl.warc.gz": _response("https://x.example/", "text/html", PAGE)
                + _response(ADDRESS, "image/jpeg", picture())
            },
            images=1,
        ),
    )

    def claim(self, tree: Tree, files: FileTable) -> Iterator[Unit]:
        """Claim .warc and .warc.gz files."""
        for entry in files.of(self.suffixes):
            if _is_ours(entry):
                files.take(entry.path)
                yield Unit(tree.uri(entry.path), entry.size, entry.etag, self.name)

    def read(self, tree: Tree, unit: Unit) -> Iterator[Document | Fault]:
        """Yield the documents of one WARC file, and a Fault for each record that cannot be read."""
        try:
            with seekable(tree, unit.uri.removeprefix(tree.uri(""))) as (file, faults, _):
                yield from faults
                yield from _documents(file, unit.uri)
        except FileNotFoundError:
            yield Fault(unit.uri, "missing", "no such file")


def _is_ours(entry: Entry) -> bool:
    """Return whether a file's name ends in .warc or .warc.gz."""
    return entry.path.lower().endswith((".warc", ".warc.gz"))


def _documents(file: IO[bytes], uri: str) -> Iterator[Document | Fault]:
    """Yield the pages of a WARC file, then its images that no page shows."""
    pages: list[Record] = []
    pictures: dict[str, Record] = {}
    for found in records(file, uri):
        if isinstance(found, Fault):
            yield found
        elif (kind := kind_of(file, found)) in PAGES:
            pages.append(found)
        elif kind.startswith("image/") or kind in UNTOLD:
            pictures.setdefault(_address(found.url), found)
    shown: set[str] = set()
    for record in pages:
        yield _document(file, uri, record, pictures, shown)
    for address, record in pictures.items():
        # As in a folder, an image that no page shows is a document of its own; a record without an image's content type
        # is not.
        if address not in shown and kind_of(file, record).startswith("image/"):
            data = body(file, uri, record)
            fault = data if isinstance(data, Fault) else None
            picture = Picture(0, address, "", b"" if isinstance(data, Fault) else data, fault)
            yield Document(f"{uri}#byte={record.offset}", "", _about(record), (picture,))


def _about(record: Record) -> dict[str, object]:
    """Return a record's metadata: address, date, record id and payload digest."""
    said: dict[str, object] = {"url": record.url, "crawled": record.date, "warc_record_id": record.id}
    return said | ({"payload_digest": record.digest} if record.digest else {})


def _document(
    file: IO[bytes], uri: str, record: Record, others: dict[str, Record], shown: set[str]
) -> Document | Fault:
    """Build a page's document; add the addresses of its images to ``shown``."""
    item = f"{uri}#byte={record.offset}"
    data = body(file, uri, record)
    if isinstance(data, Fault):
        return data
    parsed = page.parse(data)
    fault = fault_of(item, parsed)
    if fault:
        return fault
    base = urljoin(record.url, page.base(parsed.root))
    items: list[Picture | Text] = []
    held: dict[str, bytes | Fault] = {}
    position = 0
    for found in reading_order.items(parsed.root):
        if isinstance(found, Text):
            items.append(found)
        else:
            picture = _picture(file, uri, item, position, found, base, others, held)
            shown.add(picture.url)
            items.append(picture)
            position += 1
    about = page.metadata(parsed.root) | _about(record) | {"charset": parsed.charset}
    return Document(item, page.title(parsed.root), about, tuple(items))


def _picture(
    file: IO[bytes],
    uri: str,
    item: str,
    position: int,
    reference: PictureReference,
    base: str,
    others: dict[str, Record],
    held: dict[str, bytes | Fault],
) -> Picture:
    """Build an image from the first of its addresses that the file holds.

    If the file holds none of them, the image keeps its first web address, to be fetched later.
    """
    alt = reference.alt_text
    refused: list[tuple[str, Fault]] = []
    for source in reference.sources:
        if source.strip().lower().startswith("data:"):
            link = resolve(NOWHERE, "page", source)
            if link.data:
                return Picture(position, link.url, alt, link.data)
            refused += [(link.url, link.fault)] if link.fault else []
            continue
        address = _address(_joined(base, source))
        if address in others:
            data = _body_once(file, uri, address, others[address], held)
            if isinstance(data, bytes):
                return Picture(position, address, alt, data)
            refused.append((address, data))
        elif urlsplit(address).scheme in REMOTE:
            refused.append((address, Fault(address, "missing", NOT_FETCHED)))
    url, fault = refused[0] if refused else (f"{item}&picture={position}", None)
    return Picture(position, url, alt, b"", fault or Fault(url, "missing", "a picture element without a web address"))


def _body_once(
    file: IO[bytes], uri: str, address: str, record: Record, held: dict[str, bytes | Fault]
) -> bytes | Fault:
    """Read an image at most once per page, and limit a page's images to DOCUMENT_BYTES in total."""
    if address not in held:
        room = DOCUMENT_BYTES - sum(len(each) for each in held.values() if isinstance(each, bytes))
        found = body(file, uri, record) if record.size <= room else b""
        fits = isinstance(found, Fault) or 0 < len(found) <= room
        detail = f"the other pictures of its page leave room for {room} bytes"
        held[address] = found if fits else Fault(f"{uri}#byte={record.offset}", "too_large", detail)
    return held[address]


def _joined(base: str, source: str) -> str:
    """Resolve ``source`` against ``base``; return '' if the result is not a URL."""
    try:
        joined = urljoin(base, source.strip())
        urlsplit(joined)
        return joined
    except ValueError:
        return ""


def _address(url: str) -> str:
    """Normalise an address as a key: drop the fragment and lone surrogates; '' if it is not a URL."""
    try:
        return urldefrag(url).url.encode("utf-8", "replace").decode()
    except ValueError:
        return ""


def _response(url: str, kind: str, body: bytes) -> bytes:
    """Return a compressed WARC record of a server's answer."""
    answer = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n\r\n".encode() + body
    head = f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: {url}\r\nContent-Length: {len(answer)}\r\n\r\n"
    return gzip.compress(head.encode() + answer + b"\r\n\r\n")


FORMAT = Warc()
