"""Read the HTML responses in WARC files, gzipped or not, as documents, with the images that the same file holds.

The format is ISO 28500, as Common Crawl, Heritrix, wget and browser crawlers write it. A file is a unit. A first pass
finds every response, a second reads the pages. An image that the file does not hold is left for a fetch.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO
from urllib.parse import urldefrag, urljoin

from pairmill.ops.fault import Fault
from pairmill.ops.read.document import Document, Picture, Unit
from pairmill.ops.read.example import ADDRESS, PAGE, Example, picture
from pairmill.ops.read.page import page, reading_order
from pairmill.ops.read.page.links import NOT_FETCHED, REMOTE, decode_data_uri
from pairmill.ops.read.page.reading_order import PictureReference
from pairmill.ops.read.places.file_table import FileTable
from pairmill.ops.read.places.tree import DOCUMENT_BYTES, Tree
from pairmill.ops.read.places.unpack import seekable
from pairmill.ops.read.records.warc_records import Record, body, content_type_of, kind_of, records

PAGES = ("text/html", "application/xhtml+xml")
# Servers also send images with these content types.
UNTOLD = ("", "application/octet-stream", "binary/octet-stream")


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
            if entry.path.lower().endswith((".warc", ".warc.gz")):
                files.take(entry.path)
                yield Unit(tree.uri(entry.path), entry.size, entry.etag, self.name)

    def read(self, tree: Tree, unit: Unit) -> Iterator[Document | Fault]:
        """Yield the documents of one WARC file, and a Fault for each record that cannot be read."""
        with seekable(tree, tree.path_of(unit.uri)) as (file, faults, _):
            yield from faults
            yield from _OpenWarc(file, unit.uri).documents()


@dataclass
class _OpenWarc:
    """An open WARC file at ``uri``; ``images`` are the records of its images by address, found by the first pass."""

    file: IO[bytes]
    uri: str
    images: dict[str, Record] = field(default_factory=dict)
    shown: set[str] = field(default_factory=set)  # addresses of images on the pages so far

    def documents(self) -> Iterator[Document | Fault]:
        """Yield the pages of the file, then its images that no page shows."""
        pages: list[Record] = []
        for found in records(self.file, self.uri):
            if isinstance(found, Fault):
                yield found
            elif (kind := kind_of(self.file, found)) in PAGES:
                pages.append(found)
            elif kind.startswith("image/") or kind in UNTOLD:
                self.images.setdefault(_address(found.url), found)
        for record in pages:
            yield self._page(record)  # no name keeps it: its images may be 256 MB
        for address, record in self.images.items():
            # As in a folder, an image that no page shows is a document, if its record has an image's content type.
            if address not in self.shown and kind_of(self.file, record).startswith("image/"):
                data = body(self.file, self.uri, record)
                held, fault = (b"", data) if isinstance(data, Fault) else (data, None)
                picture = Picture(0, address, "", held, fault)
                yield Document(f"{self.uri}#byte={record.offset}", "", _about(record), (picture,))

    def _page(self, record: Record) -> Document | Fault:
        """Build a page's document."""
        item = f"{self.uri}#byte={record.offset}"
        data = body(self.file, self.uri, record)
        parsed = data if isinstance(data, Fault) else page.parse(item, data, content_type_of(self.file, record))
        if isinstance(parsed, Fault):
            return parsed
        base = urljoin(record.url, page.base(parsed.root))
        held: dict[str, bytes | Fault] = {}

        def read_picture(reference: PictureReference, position: int) -> Picture:
            found = self._picture(reference, position, base, f"{item}&picture={position}", held)
            self.shown.add(found.url)
            return found

        about = _about(record) | {"charset": parsed.charset}
        return page.build_document(item, parsed, reading_order.items(parsed.root), read_picture, about)

    def _picture(
        self, reference: PictureReference, position: int, base: str, nowhere: str, held: dict[str, bytes | Fault]
    ) -> Picture:
        """Build an image from its first address that the file holds, else keep its first web address for a fetch."""
        refused: list[tuple[str, Fault]] = []
        for source in reference.sources:
            if source.strip().lower().startswith("data:"):
                link = decode_data_uri(source)
                if link.data:
                    return Picture(position, link.url, reference.alt_text, link.data)
                refused += [(link.url, link.fault)] if link.fault else []
                continue
            address = _address(source, base)
            if address in self.images:
                data = self._read_once(address, held)
                if isinstance(data, bytes):
                    return Picture(position, address, reference.alt_text, data)
                refused.append((address, data))
            elif address.partition(":")[0].lower() in REMOTE:
                refused.append((address, Fault(address, "missing", NOT_FETCHED)))
        refused.append((nowhere, Fault(nowhere, "missing", "a picture element without a web address")))
        return Picture(position, refused[0][0], reference.alt_text, b"", refused[0][1])

    def _read_once(self, address: str, held: dict[str, bytes | Fault]) -> bytes | Fault:
        """Read an image at most once per page, and limit a page's images to DOCUMENT_BYTES in total."""
        if address not in held:
            record = self.images[address]
            room = DOCUMENT_BYTES - sum(len(each) for each in held.values() if isinstance(each, bytes))
            found = body(self.file, self.uri, record) if record.size <= room else b""
            fits = isinstance(found, Fault) or 0 < len(found) <= room
            detail = f"the other pictures of its page leave room for {room} bytes"
            held[address] = found if fits else Fault(f"{self.uri}#byte={record.offset}", "too_large", detail)
        return held[address]


def _about(record: Record) -> dict[str, object]:
    """Return a record's metadata: address, date, record id and payload digest."""
    said: dict[str, object] = {"url": record.url, "crawled": record.date, "warc_record_id": record.id}
    return said | ({"payload_digest": record.digest} if record.digest else {})


def _address(url: str, base: str = "") -> str:
    """Resolve an address as a key, without fragment and lone surrogates; '' if it is not a URL."""
    try:
        return urldefrag(urljoin(base, url.strip())).url.encode("utf-8", "replace").decode()
    except ValueError:
        return ""


def _response(url: str, kind: str, body: bytes) -> bytes:
    """Return a compressed WARC record of a server's answer."""
    answer = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n\r\n".encode() + body
    head = f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: {url}\r\nContent-Length: {len(answer)}\r\n\r\n"
    return gzip.compress(head.encode() + answer + b"\r\n\r\n")


FORMATS = (Warc(),)
