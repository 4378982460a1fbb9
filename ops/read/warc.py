"""WARC and WARC.gz: the HTML responses of a crawl as documents, their pictures from the same file by address.

ISO 28500, as Common Crawl, Heritrix, wget and browsers' crawlers write it. A file is a unit. It is gone through twice:
first every response is found, then the pages are read; a picture that the file does not hold stays to be fetched.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import IO, NamedTuple
from urllib.parse import urldefrag, urljoin, urlsplit

from ops.fault import Fault
from ops.read import page
from ops.read.document import Claim, Document, Picture, Text, Unit
from ops.read.html_folder import fault_of
from ops.read.links import NOT_FETCHED, REMOTE, resolve
from ops.read.tree import MAX_BYTES, Entry, LocalTree, Tree
from ops.read.unpack import ALWAYS_ALLOWED, MAX_RATIO, seekable

PAGES = ("text/html", "application/xhtml+xml")
# Servers send pictures under these as well.
UNTOLD = ("", "application/octet-stream", "binary/octet-stream")
# A record's and a response's header lines are some kilobytes.
MAX_HEADER = 64 * 1024
NOWHERE = LocalTree("/nowhere")


class Record(NamedTuple):
    """A response or resource: its address and date, its own kind of content, and where its block stands."""

    url: str
    date: str
    kind: str
    id: str
    offset: int
    size: int


class Warc:
    """Pages in the order of the file, each a document whose metadata tells address, date and record."""

    name = "warc"
    suffixes: frozenset[str] = frozenset(("warc", "gz"))
    expects = ".warc or .warc.gz with HTML responses"

    def detect(self, tree: Tree, entries: list[Entry]) -> bool:
        return any(_is_ours(entry) for entry in entries)

    def claim(self, tree: Tree, entries: list[Entry]) -> Claim:
        ours = [entry for entry in entries if _is_ours(entry)]
        units = [Unit(tree.uri(entry.path), entry.size, entry.etag, self.name) for entry in ours]
        return Claim(units, {entry.path for entry in ours})

    def read(self, tree: Tree, unit: Unit) -> Iterator[Document | Fault]:
        try:
            with seekable(tree, unit.uri.removeprefix(tree.uri(""))) as (file, faults):
                yield from faults
                yield from _documents(file, unit.uri)
        except FileNotFoundError:
            yield Fault(unit.uri, "missing", "no such file")


def _is_ours(entry: Entry) -> bool:
    return entry.path.lower().endswith((".warc", ".warc.gz"))


def _documents(file: IO[bytes], uri: str) -> Iterator[Document | Fault]:
    pages: list[Record] = []
    pictures: dict[str, Record] = {}
    for found in _records(file, uri):
        if isinstance(found, Fault):
            yield found
        elif (kind := _kind(file, found)) in PAGES:
            pages.append(found)
        elif kind.startswith("image/") or kind in UNTOLD:
            pictures.setdefault(_address(found.url), found)
    shown: set[str] = set()
    for record in pages:
        yield _document(file, uri, record, pictures, shown)
    for address, record in pictures.items():
        # As in a folder: what no page shows is a document of its own. Bytes without a kind are only so if shown.
        if address not in shown and _kind(file, record).startswith("image/"):
            data = _body(file, uri, record)
            fault = data if isinstance(data, Fault) else None
            picture = Picture(0, address, "", b"" if isinstance(data, Fault) else data, fault)
            yield Document(f"{uri}#byte={record.offset}", "", _about(record), (picture,))


def _about(record: Record) -> dict[str, object]:
    return {"url": record.url, "crawled": record.date, "warc_record_id": record.id}


def _records(file: IO[bytes], uri: str) -> Iterator[Record | Fault]:
    end = file.seek(0, 2)
    at = 0
    while at < end:
        file.seek(at)
        line = file.readline(MAX_HEADER)
        if not line.strip():
            at += len(line)
            continue
        fields = _fields(file) if line.startswith(b"WARC/") else None
        size = fields.get("content-length", "") if fields is not None else ""
        if fields is None or not (size.isascii() and size.isdigit() and len(size) < 16):
            yield Fault(f"{uri}#byte={at}", "bad_record", f"no WARC record here ({line[:40]!r}); what follows is lost")
            return
        start, n = file.tell(), int(size)
        if start + n > end:
            yield Fault(f"{uri}#byte={at}", "truncated", f"{end - start} of the record's {n} bytes are there")
            return
        at = start + n
        if fields.get("warc-type") in ("response", "resource"):
            yield _record(fields, start, n)


def _record(fields: dict[str, str], start: int, size: int) -> Record:
    kind = "http" if fields["warc-type"] == "response" else fields.get("content-type", "")
    url = fields.get("warc-target-uri", "").strip("<>")
    return Record(url, fields.get("warc-date", ""), kind, fields.get("warc-record-id", ""), start, size)


def _fields(file: IO[bytes]) -> dict[str, str] | None:
    """Header lines up to the empty one; None when they do not end. Names in lower case, the first of each counts."""
    found: dict[str, str] = {}
    left = MAX_HEADER
    while left > 0:
        line = file.readline(left)
        left -= len(line)
        if not line.endswith(b"\n"):
            return None
        if not line.strip():
            return found
        name, _, value = line.decode("utf-8", "replace").partition(":")
        found.setdefault(name.strip().lower(), value.strip())
    return None


class Answer(NamedTuple):
    status: int
    fields: dict[str, str]
    size: int


def _answer(file: IO[bytes], record: Record) -> Answer | None:
    """Header of the response, the file then standing at its body; None for what is no answer of a web server."""
    file.seek(record.offset)
    if record.kind != "http":
        return Answer(200, {"content-type": record.kind}, record.size)
    first = file.readline(min(MAX_HEADER, record.size)).split(None, 2)
    fields = _fields(file) if len(first) > 1 and first[0].startswith(b"HTTP/") and first[1].isdigit() else None
    size = record.offset + record.size - file.tell()
    return Answer(int(first[1][:4]), fields, size) if fields is not None and size >= 0 else None


def _kind(file: IO[bytes], record: Record) -> str:
    answer = _answer(file, record)
    return answer.fields.get("content-type", "").split(";")[0].strip().lower() if answer else ""


def _body(file: IO[bytes], uri: str, record: Record) -> bytes | Fault:
    """The response's content, transfer and content encoding undone."""
    item = f"{uri}#byte={record.offset}"
    answer = _answer(file, record)
    if answer is None:
        return Fault(item, "bad_record", "no HTTP response")
    if answer.status != 200:
        return Fault(item, "http_status", f"the crawl was answered {answer.status}")
    if answer.size > MAX_BYTES:
        return Fault(item, "too_large", f"{answer.size} bytes; at most {MAX_BYTES} are read")
    data = file.read(answer.size)
    if "chunked" in answer.fields.get("transfer-encoding", "").lower():
        data = _unchunked(data)
    coding = answer.fields.get("content-encoding", "").lower()
    # Common Crawl stores content decoded and keeps the header under another name; others store what came.
    if coding in ("gzip", "x-gzip") and data.startswith(b"\x1f\x8b"):
        return _inflated(item, data, 31)
    if coding == "deflate" and data[:1] == b"\x78":
        return _inflated(item, data, 15)
    return data if data else Fault(item, "empty", "no bytes")


def _inflated(item: str, data: bytes, window: int) -> bytes | Fault:
    limit = min(ALWAYS_ALLOWED + MAX_RATIO * len(data), MAX_BYTES)
    inflate = zlib.decompressobj(wbits=window)
    try:
        found = inflate.decompress(data, limit)
    except zlib.error as error:
        return Fault(item, "undecodable", f"damaged content encoding: {error}")
    if not inflate.eof:
        return Fault(item, *(("bomb", f"over {limit} bytes") if len(found) == limit else ("truncated", "cut content")))
    return found


def _unchunked(data: bytes) -> bytes:
    """The body without its chunk sizes (RFC 9112, 7.1); as it stands when it is not chunked, as many crawlers store."""
    parts, at = [], 0
    while at < len(data):
        end = data.find(b"\n", at, at + 1024)
        size = data[at:end].split(b";")[0].strip() if end >= 0 else b""
        try:
            n = int(size, 16)
        except ValueError:
            return data
        if n <= 0:
            break
        parts.append(data[end + 1 : end + 1 + n])
        at = end + 1 + n + (2 if data[end + 1 + n : end + 3 + n] == b"\r\n" else 1)
    return b"".join(parts)


def _document(
    file: IO[bytes], uri: str, record: Record, others: dict[str, Record], shown: set[str]
) -> Document | Fault:
    item = f"{uri}#byte={record.offset}"
    data = _body(file, uri, record)
    if isinstance(data, Fault):
        return data
    parsed = page.parse(data)
    fault = fault_of(item, parsed)
    if fault:
        return fault
    base = urljoin(record.url, page.base(parsed.root))
    items: list[Picture | Text] = []
    position = 0
    for found in page.items(parsed.root):
        if isinstance(found, Text):
            items.append(found)
        else:
            picture = _picture(file, uri, item, position, found, base, others)
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
    reference: page.PictureReference,
    base: str,
    others: dict[str, Record],
) -> Picture:
    """The first of the picture's addresses that the file holds; else the first on the web, to be fetched."""
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
            data = _body(file, uri, others[address])
            if isinstance(data, bytes):
                return Picture(position, address, alt, data)
            refused.append((address, data))
        elif urlsplit(address).scheme in REMOTE:
            refused.append((address, Fault(address, "missing", NOT_FETCHED)))
    url, fault = refused[0] if refused else (f"{item}&picture={position}", None)
    return Picture(position, url, alt, b"", fault or Fault(url, "missing", "a picture element without a web address"))


def _joined(base: str, source: str) -> str:
    try:
        joined = urljoin(base, source.strip())
        urlsplit(joined)
        return joined
    except ValueError:
        return ""


def _address(url: str) -> str:
    try:
        return urldefrag(url).url.encode("utf-8", "replace").decode()
    except ValueError:
        return ""
