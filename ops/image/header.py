"""Read an image's format, shown size and animation from its headers, without decoding (3 to 35 microseconds)."""

from __future__ import annotations

import io
import struct
import warnings
from collections.abc import Callable, Iterator
from typing import NamedTuple

from PIL import Image

from pairmill.ops.fault import Fault
from pairmill.ops.image.animation import is_animated
from pairmill.ops.image.orientation import TURNED, orientation_of

# What decoders raise on hostile bytes.
HOSTILE = (
    OSError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    EOFError,
    SyntaxError,
    RuntimeError,
    struct.error,
)
HOSTILE += (AttributeError, AssertionError, MemoryError, Image.DecompressionBombError)

# JPEG markers SOF0..SOF15 without DHT, JPG and DAC, which stand between them.
FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
BARE = frozenset((0x01, *range(0xD0, 0xD9)))


# Bytes a pixel that decoding takes: Pillow's picture and ours, and what the format's decoder holds besides. A worker is
# to stay below 1.2 GB, of which 0.35 are its own.
PLAIN_BYTES, MOST_DECODED = 7, 700_000_000
DECODER_BYTES = {"webp": 19, "avif": 19, "tiff": 10}
PROGRESSIVE_BYTES = 14


class Header(NamedTuple):
    """Size in pixels as shown (EXIF orientation applied), and ``format``: jpeg, png, webp, gif, bmp, tiff or avif.

    ``animated``: there is more than the one frame that scores are made from.
    """

    width: int
    height: int
    format: str
    animated: bool = False


class StoredSize(NamedTuple):
    """Size as stored, and the EXIF orientation that turns it into the shown one."""

    width: int
    height: int
    orientation: int


class TruncatedHeader(Exception):
    """The header itself ends early."""


def inspect(data: bytes, max_pixels: int = 100_000_000, max_bytes: int = 50_000_000) -> Header | Fault:
    """Read the header of an encoded image, or return a Fault; never raises.

    empty: no bytes; too_large: more than ``max_bytes``; not_an_image: no known format (HTML, SVG, HEIC, …); truncated:
    cut inside the header; undecodable: a header that makes no sense; bomb: more than ``max_pixels`` pixels. A file cut
    behind its header passes here and falls in ``Decode``.
    """
    if not data:
        return Fault("", "empty", "no bytes")
    if len(data) > max_bytes:
        return Fault("", "too_large", f"{len(data)} bytes; at most {max_bytes} are taken")
    format = format_of(data)
    if not format:
        return Fault("", "not_an_image", f"no known image format; begins with {_first_bytes(data)}")
    try:
        stored = stored_size(data, format)
    except (TruncatedHeader, struct.error):
        return Fault("", "truncated", f"the {format} header is cut off after {len(data)} bytes")
    except HOSTILE as error:
        return Fault("", "undecodable", f"a {format} header that cannot be read: {error}")
    if stored.width < 1 or stored.height < 1:
        return Fault("", "undecodable", f"the {format} header says {stored.width} x {stored.height} pixels")
    if stored.width * stored.height > max_pixels:
        return Fault("", "bomb", f"{stored.width} x {stored.height} pixels; at most {max_pixels} are decoded")
    pixels, most = stored.width * stored.height, max(MOST_DECODED, PLAIN_BYTES * max_pixels)
    # Nearly all are so small that their decoder does not matter.
    if 20 * pixels > most and (need := pixels * _decoder_bytes(data, format)) > most:
        detail = f"{stored.width} x {stored.height} pixels of {format} take {need // 10**6} MB to decode"
        return Fault("", "bomb", detail)
    width, height = stored[:2] if stored.orientation not in TURNED else stored[1::-1]
    return Header(width, height, format, is_animated(data, format))


def _decoder_bytes(data: bytes, format: str) -> int:
    """Return the bytes a pixel takes to decode; a progressive JPEG's decoder holds all coefficients."""
    if format == "jpeg" and any(b"\xff" + bytes([frame]) in data for frame in (0xC2, 0xC6, 0xCA, 0xCE)):
        return PROGRESSIVE_BYTES
    return DECODER_BYTES.get(format, PLAIN_BYTES)


def format_of(data: bytes) -> str:
    """Return the format by magic bytes alone, '' for none."""
    if data.startswith(b"\xff\xd8\xff") or data in (b"\xff\xd8", b"\xff"):
        return "jpeg"
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "png"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "gif"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "webp"
    if data.startswith((b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")):
        return "tiff"
    if data[4:8] == b"ftyp" and (data[8:12] in (b"avif", b"avis") or _lists_avif(data)):
        return "avif"
    # 'BM' alone would catch text; the size of the second header is one of a few.
    if data.startswith(b"BM") and len(data) >= 18 and data[14:18] in BMP_HEADERS:
        return "bmp"
    return ""


BMP_HEADERS = frozenset(struct.pack("<I", size) for size in (12, 16, 40, 52, 56, 64, 108, 124))


def _lists_avif(data: bytes) -> bool:
    """Whether a 'mif1' or 'msf1' file says AVIF among its compatible brands."""
    size = int.from_bytes(data[:4], "big")
    brands = data[16 : min(size, 256)]
    return data[8:12] in (b"mif1", b"msf1") and b"avif" in [brands[at : at + 4] for at in range(0, len(brands), 4)]


def stored_size(data: bytes, format: str) -> StoredSize:
    """Parse size and orientation of an image of ``format``. Raises Cut, struct.error or one of HOSTILE."""
    return PARSERS[format](data)


def _jpeg(data: bytes) -> StoredSize:
    at, orientation = 2, 1
    while True:
        at = data.find(b"\xff", at)
        if at < 0:
            raise TruncatedHeader
        while data[at : at + 1] == b"\xff":
            at += 1
        if at >= len(data):
            raise TruncatedHeader
        marker = data[at]
        at += 1
        if marker in BARE or marker == 0:
            continue
        if marker in (0xD9, 0xDA):
            raise ValueError("no frame before the data")
        (length,) = struct.unpack_from(">H", data, at)
        if marker in FRAMES:
            height, width = struct.unpack_from(">HH", data, at + 3)
            return StoredSize(width, height, orientation)
        if marker == 0xE1 and data[at + 2 : at + 8] == b"Exif\0\0":
            orientation = orientation_of(data[at + 2 : at + length])
        at += max(length, 2)


def _png(data: bytes) -> StoredSize:
    if len(data) >= 16 and data[12:16] != b"IHDR":
        raise ValueError("no IHDR chunk first")
    width, height = struct.unpack_from(">II", data, 16)
    at, orientation = 8, 1
    # An eXIf chunk may stand before or behind the pixels; decoders agree only on the former.
    while at + 8 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        if kind == b"eXIf":
            orientation = orientation_of(data[at + 8 : at + 8 + length])
        if kind in (b"IDAT", b"IEND", b"eXIf"):
            break
        at += length + 12
    return StoredSize(width, height, orientation)


def _gif(data: bytes) -> StoredSize:
    return StoredSize(*struct.unpack_from("<HH", data, 6), 1)


def _bmp(data: bytes) -> StoredSize:
    if data[14:18] == b"\x0c\0\0\0":
        return StoredSize(*struct.unpack_from("<HH", data, 18), 1)
    width, height = struct.unpack_from("<ii", data, 18)
    return StoredSize(width, abs(height), 1)  # a negative height says that the first row is the top one


def _webp(data: bytes) -> StoredSize:
    """RFC 9649: a lossy, a lossless or an extended file; only the last can hold EXIF, behind the pixels."""
    kind = data[12:16]
    if kind == b"VP8 ":
        if len(data) >= 26 and data[23:26] != b"\x9d\x01\x2a":
            raise ValueError("no VP8 key frame")
        width, height = struct.unpack_from("<HH", data, 26)
        return StoredSize(width & 0x3FFF, height & 0x3FFF, 1)
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return StoredSize((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1, 1)
    if kind == b"VP8X":
        low_w, high_w, low_h, high_h = struct.unpack_from("<HBHB", data, 24)
        exif = next((body for name, body in _webp_chunks(data) if name == b"EXIF"), b"")
        return StoredSize((low_w | high_w << 16) + 1, (low_h | high_h << 16) + 1, orientation_of(exif))
    if len(data) < 30:
        raise TruncatedHeader
    raise ValueError(f"no picture chunk first but {kind!r}")


def _webp_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 12
    while at + 8 <= len(data):
        name, length = struct.unpack_from("<4sI", data, at)
        yield name, data[at + 8 : at + 8 + length] if name == b"EXIF" else b""
        at += 8 + length + length % 2


def _by_pillow(data: bytes) -> StoredSize:
    """TIFF and AVIF are boxes in boxes: opened lazily. Pillow has turned a TIFF's size already, an AVIF's not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # remarks on odd tags
        image = Image.open(io.BytesIO(data), formats=("TIFF", "AVIF"))
    with image:
        orientation = image.getexif().get(0x0112, 1) if image.format == "AVIF" else 1
        return StoredSize(*image.size, orientation if orientation in range(1, 9) else 1)


PARSERS: dict[str, Callable[[bytes], StoredSize]] = {
    "jpeg": _jpeg,
    "png": _png,
    "gif": _gif,
    "bmp": _bmp,
    "webp": _webp,
    "tiff": _by_pillow,
    "avif": _by_pillow,
}


def _first_bytes(data: bytes) -> str:
    return repr(data[:24].decode("latin-1"))
