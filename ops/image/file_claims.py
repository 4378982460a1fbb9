"""Read what a picture's file says of itself: its rights, its creator, where it was taken, that AI made it."""

import html
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml

from pairmill.catalog.terms.controls import printable
from pairmill.ops.batch import Batch
from pairmill.ops.image import header
from pairmill.ops.image.header import HOSTILE, MARKS, SCAN, TruncatedHeader, chunks, format_of, segments

MOST_BYTES, EDGE, MOST_LETTERS = 2_000_000, 32_768, 300
C2PA = "jumdc2pa"  # type of the description box of a manifest store (C2PA 2.1, section 11.1.4)
# The value of an XMP property, written as an attribute, as a resource, or as an element, maybe with a list of values.
_VALUE = (
    r'(?:="([^"]{1,500})"|[^<>]{0,99}?rdf:resource="([^"]{1,500})"|'
    r"(?:\s[^<>]{0,99})?>\s{0,99}(?:<rdf:(?:Seq|Bag|Alt)>\s{0,99}<rdf:li[^<>]{0,99}>)?([^<>]{1,500}))"
)


@dataclass(frozen=True)
class FileClaims:
    """Read ``encoded`` (list of bytes); add one column for each claim, '' where the file says nothing.

    ``has_gps``: EXIF or XMP says where it was taken. ``exif_rights``: the copyright notice of XMP, EXIF or IPTC.
    ``file_licence``: an address or phrase in XMP. ``file_creator``: who is to be credited. ``ai_made``: by which mark
    of file_claims.yaml AI made it, ``ai_evidence``: what the mark says. An absent mark proves nothing: most services
    strip metadata.
    """

    version: int = 1

    def __call__(self, batch: Batch) -> Batch:
        """Return ``batch`` with one column added for each claim."""
        found = [read_claims(data) for data in batch["encoded"]]
        return batch | {name: [each[name] for each in found] for name in read_claims(b"")}


@cache
def _marks() -> dict[str, Any]:
    """Load file_claims.yaml with its patterns compiled."""
    marks = yaml.safe_load((Path(__file__).parent / "file_claims.yaml").read_text("utf-8"))
    compiled = {name: re.compile(marks[name]) for name in ("software", "gps")}
    by_ai = [each | {"pattern": re.compile(each["pattern"])} for each in marks["ai_made"]]
    return marks | compiled | {"ai_made": by_ai}


def read_claims(data: bytes) -> dict[str, Any]:
    """Return the claims of one encoded picture by the names of `FileClaims`. Never raises."""
    marks, stored = _marks(), _metadata(data)
    exif = header.read_exif(data) if any(mark in stored for mark in MARKS) else {}
    plain = stored.replace(b"\0", b"").decode("latin-1")  # UTF-16 of ASCII letters becomes readable
    start, end = stored.find(b"<x:xmpmeta"), stored.find(b"</x:xmpmeta>")
    xmp = stored[start:end].decode("utf-8", "replace") if 0 <= start < end else ""
    found: dict[str, Any] = {"has_gps": "GPSInfo" in exif or marks["gps"].search(xmp) is not None}
    for name in ("exif_rights", "file_licence", "file_creator"):
        places = marks[name]
        said = (_xmp(xmp, each) for each in places["xmp"])
        told = next(filter(None, said), "") or exif.get(places.get("exif"), "") or _iptc(stored, places.get("iptc", 0))
        found[name] = printable(" ".join(told.split()))[:MOST_LETTERS]
    software = "\n".join([exif.get("Software", ""), *marks["software"].findall(plain)])
    said_in = {"metadata": plain, "software": software}
    for mark in marks["ai_made"]:
        if seen := mark["pattern"].search(said_in[mark["in"]]):
            is_signed = C2PA in plain and not (mark["in"] == "metadata" and seen[1] in xmp)
            return found | {"ai_made": "c2pa" if is_signed else mark["by"], "ai_evidence": printable(seen[1])}
    return found | {"ai_made": "", "ai_evidence": ""}


def _xmp(packet: str, name: str) -> str:
    """Return the first value of a property in an XMP packet, '' without one."""
    found = re.search(rf"[<\s]{name}{_VALUE}", packet) if name in packet else None
    return html.unescape(next(filter(None, found.groups()), "")) if found else ""


def _iptc(stored: bytes, number: int) -> str:
    """Return the value of IPTC's dataset 2:``number`` (IIM 4.2), '' without one."""
    at = stored.find(bytes((0x1C, 2, number))) if number and b"8BIM" in stored else -1
    length = int.from_bytes(stored[at + 3 : at + 5], "big") if at >= 0 else 0
    return stored[at + 5 : at + 5 + length].decode("utf-8", "replace")


def _metadata(data: bytes) -> bytes:
    """Return at most MOST_BYTES of a JPEG, PNG or WebP without its coded pixels; EDGE at three places of others."""
    format, parts = format_of(data), []
    with suppress(TruncatedHeader, *HOSTILE):
        if format == "jpeg":
            parts = [data[start:end] for _, start, end in takewhile(lambda each: each[0] != SCAN, segments(data))]
        elif format == "png":
            parts = [chunk for kind, chunk in chunks(data) if kind not in (b"IDAT", b"fdAT", b"PLTE")]
        elif format == "webp":  # chunks of metadata follow the pixels
            names = (b"EXIF", b"XMP ", b"C2PA") if data[12:16] == b"VP8X" else ()
            parts = [data[at:] for name in names if (at := data.find(name)) > 0] or [b""]
    if not parts:
        at = max(0, data.find(b"<x:xmpmeta"))
        parts = [data[:EDGE], data[at : at + EDGE], data[-EDGE:]]
    return b"\n".join(parts)[:MOST_BYTES]
