"""Resolve a document's image reference to a file of the same source, to embedded bytes, or to a fault."""

import base64
import binascii
import os
import posixpath
import re
from dataclasses import dataclass
from unicodedata import normalize
from urllib.parse import quote, unquote_to_bytes, urlsplit

from pairmill.ops.fault import Fault
from pairmill.ops.read.document import Picture
from pairmill.ops.read.places.tree import Tree, is_storable
from pairmill.ops.web_address import MOST_LETTERS, absolute_address

REMOTE = ("http", "https", "ftp")
# The start of a fault's detail if the image has a web address that a fetch may still load.
NOT_FETCHED = "remote image: not fetched"
NOT_BASE64 = re.compile(rb"[^A-Za-z0-9+/]")


def is_link(picture: Picture) -> bool:
    """Return whether the image's bytes must still be fetched from its web address."""
    fault = picture.fault
    return fault is not None and fault.reason == "missing" and fault.detail.startswith(NOT_FETCHED)


@dataclass(frozen=True)
class Link:
    """A resolved image reference: a file of the source, embedded bytes, or a fault."""

    url: str  # absolute: a file's URI, a web address, or the shortened data: URI of embedded bytes
    paths: tuple[str, ...] = ()  # the candidate files of the source, best first
    data: bytes = b""
    fault: Fault | None = None


def resolve(tree: Tree, page: str, reference: str, base: str = "") -> Link:
    """Resolve an image reference of the document at path ``page``; ``base`` is its <base href>, or ''. Never raises."""
    reference = _strip(reference)
    if reference[:5].lower() == "data:":
        return decode_data_uri(reference)  # urlsplit would keep it in its cache
    try:
        parts = urlsplit(reference)
        if base.startswith("//"):
            base = f"http:{base}"
        base_scheme = urlsplit(base).scheme.lower()
    except ValueError as error:
        return _refuse(reference, "missing", f"not a URL: {error}")
    scheme = parts.scheme.lower()
    if not reference.strip("#?"):
        return _refuse(tree.uri(page), "missing", "the picture names no file")
    if scheme in REMOTE or parts.netloc:
        return _refuse(reference if scheme else absolute_address(reference, "http://x"), "missing", NOT_FETCHED)
    if scheme == "file" or len(scheme) == 1:
        return _refuse(reference, "unsafe_path", "a file of the machine the page was written on is not read")
    if scheme:
        return _refuse(reference[:200], "missing", f"'{scheme}:' is not fetched")
    folder = posixpath.dirname(page) if base_scheme in REMOTE or not base else _folder(page, base)
    if not (paths := _inside(folder, parts.path, parts.query)):
        return _refuse(reference, "unsafe_path", f"'{reference[:200]}' leaves the source")
    if base_scheme in REMOTE:
        # A saved page may still name its original site as base: use files beside it; all others would need a fetch.
        paths = [path for path in paths if tree.exists(path)]
        if not paths:
            return _refuse(absolute_address(reference, base), "missing", NOT_FETCHED)
    return Link(tree.uri(paths[0]), tuple(paths))


def _folder(page: str, base: str) -> str:
    """Return the folder, inside the source, that ``base`` means for a page."""
    joined = posixpath.join("/", posixpath.dirname(page), base)
    return posixpath.dirname(posixpath.normpath(joined + ("x" if base.endswith("/") else ""))).strip("/")


def _inside(folder: str, path: str, query: str) -> list[str]:
    """List the candidate paths of a reference, best first; return [] if the reference leaves the source.

    The first candidate decodes percent signs, as a browser does. The others follow the habits of saved pages: text
    unchanged, the query in the file name, a backslash as a slash; accents composed or apart (macOS), or percent signs
    in the file name (wget). An absolute path starts at the source's root.
    """
    readings = [path]
    if query:
        readings.append(f"{path}?{query}")
    if "\\" in path:
        readings.append(path.replace("\\", "/"))
    decoded = [os.fsdecode(unquote_to_bytes(reading)) for reading in readings]
    if any(_outside(_relative(folder, reading.replace("\\", "/"))) for reading in decoded):
        return []
    others = [form for reading in decoded for form in _spellings(reading)]
    found = [_relative(folder, reading) for reading in decoded + readings + others]
    return [path for path in dict.fromkeys(found) if path != "." and is_storable(path) and not _outside(path)]


def _spellings(path: str) -> list[str]:
    """List the other forms in which programs write a decoded path: NFC, NFD, and percent-encoded."""
    if path.isascii() and " " not in path:
        return []
    forms = [normalize("NFC", path), normalize("NFD", path)] if len(path) <= MOST_LETTERS else []
    return [*forms, quote(os.fsencode(path), safe="/!$&'()*+,;=:@~")]


def _relative(folder: str, path: str) -> str:
    """Join ``path`` to ``folder`` and normalise the result; an absolute path starts at the source's root."""
    return posixpath.normpath(path.strip("/") if path.startswith("/") else posixpath.join(folder, path))


def _outside(path: str) -> bool:
    """Return whether a normalised path leaves the source or contains a NUL character."""
    return path == ".." or path.startswith("../") or "\0" in path


def _refuse(url: str, reason: str, detail: str) -> Link:
    """Return a Link that consists of a fault only."""
    return Link(url, fault=Fault(url, reason, detail))


def _strip(reference: str) -> str:
    """Strip white space, and replace lone surrogates, which JSON escapes may contain but no URL or file name."""
    return reference.strip(" \t\r\n\f").encode("utf-8", "replace").decode()


def decode_data_uri(reference: str) -> Link:
    """Decode a data: URI (RFC 2397) as leniently as a browser.

    Base64 may have white space and lack its '='; any other body is percent-encoded text.
    """
    reference = _strip(reference)
    url = reference if len(reference) <= 100 else f"{reference[:80]}...({len(reference)} characters)"
    head, comma, body = reference.partition(",")
    if not comma:
        return _refuse(url, "bad_record", "a data: URI without a comma")
    data = unquote_to_bytes(body)
    if head.lower().endswith(";base64"):
        letters = NOT_BASE64.sub(b"", data.replace(b"-", b"+").replace(b"_", b"/"))
        try:
            data = base64.b64decode(letters + b"=" * (-len(letters) % 4))
        except (binascii.Error, ValueError) as error:
            return _refuse(url, "bad_record", f"a data: URI that is not base64: {error}")
    return Link(url, data=data) if data else _refuse(url, "empty", "a data: URI without data")
