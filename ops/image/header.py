"""Read an image's format, displayed size, animation flag and EXIF from its headers, without decoding.

`inspect` takes 3 to 35 microseconds. The orientation is EXIF 2.32's, 1 (upright) to 8, tag 0x0112 of the TIFF block.
"""

import io
import re
import struct
import threading
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import NamedTuple

from PIL import ExifTags, Image

from pairmill.ops.fault import Fault, in_words

# Exceptions that decoders raise on hostile bytes.
HOSTILE = (OSError, ValueError, TypeError, LookupError, ArithmeticError, EOFError, SyntaxError, RuntimeError)
HOSTILE += (struct.error, AttributeError, AssertionError, MemoryError, Image.DecompressionBombError)

# JPEG markers SOF0 to SOF15 (start of frame), without DHT, JPG and DAC, which lie in the same range.
FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
END, SCAN, APP1, CODED = 0xD9, 0xDA, 0xE1, 0
ALONE = frozenset((0x00, 0x01, *range(0xD0, 0xD9), END, 0xFF))  # without a segment
AFTER_SCAN = re.compile(rb"\xff[\xc0-\xcf\xd8-\xfe]")  # coded data hold restarts and stuffed zeros alone
# EXIF orientations that swap rows and columns.
TURNED = (5, 6, 7, 8)
ORIENTATION, SHORT = 0x0112, 3
PNG_MARK = b"\x89PNG\r\n\x1a\n"
# Kinds of a GIF's blocks.
TRAILER, EXTENSION, FRAME = 0x3B, 0x21, 0x2C
# A GIF of the largest accepted size has 200,000 blocks, a PNG 6,400 chunks of the usual 8 KB. A hostile GIF could have
# 25 million empty ones, a PNG 4 million.
MAX_BLOCKS = 400_000
# Of a value in a TIFF, by its type.
TAG_BYTES = {3: 2, 4: 4, 5: 8, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}
# Some EXIF blocks hold whole previews and maker notes; a person reads the first few tags only.
MOST_TAGS, MOST_LETTERS = 64, 200
MARKS = (b"Exif\0\0", b"eXIf", b"EXIF", b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")

# Bytes per pixel that decoding takes: Pillow's image and our copy, plus the buffers of the format's decoder. A worker
# must stay below 1.2 GB, of which the process itself takes 0.35 GB.
PLAIN_BYTES, MOST_DECODED = 7, 700_000_000
DECODER_BYTES = {"webp": 19, "avif": 19, "tiff": 10}
PROGRESSIVE_BYTES = 14


class Header(NamedTuple):
    """Displayed size of an image in pixels (EXIF orientation applied), its format and animation flag."""

    width: int
    height: int
    format: str  # jpeg, png, webp, gif, bmp, tiff or avif
    animated: bool = False  # has more frames than the first, from which scores are computed


class StoredSize(NamedTuple):
    """Size of an image in pixels as stored, and the EXIF orientation that converts it to the displayed size."""

    width: int
    height: int
    orientation: int
    is_animated: bool = False  # known of a PNG (APNG) alone, by its acTL chunk


class TruncatedHeader(Exception):
    """The data ends inside the image's header."""


def inspect(data: bytes, max_pixels: int = 100_000_000, max_bytes: int = 50_000_000) -> Header | Fault:
    """Read the header of an encoded image, or return a Fault; never raises.

    The reasons of a Fault: ``empty``: no bytes; ``too_large``: more than ``max_bytes``; ``not_an_image``: no known
    format (HTML, SVG, HEIC, …); ``truncated``: cut inside the header; ``undecodable``: an invalid header; ``bomb``:
    more than ``max_pixels``, or too much memory. A file cut after its header passes here and fails in ``Decode``.
    """
    if not data:
        return Fault("", "empty", "no bytes")
    if len(data) > max_bytes:
        return Fault("", "too_large", f"{len(data)} bytes; at most {max_bytes} are taken")
    if not (format := format_of(data)):
        begins = repr(data[:24].decode("latin-1"))
        return Fault("", "not_an_image", f"no known image format; begins with {begins}")
    try:
        stored = stored_size(data, format)
    except (TruncatedHeader, struct.error):
        return Fault("", "truncated", f"the {format} header is cut off after {len(data)} bytes")
    except HOSTILE as error:
        if ends_early(data, format):
            return Fault("", "truncated", f"the {format} file ends before its pixels, after {len(data)} bytes")
        return Fault("", "undecodable", f"{format}: {in_words(error)}")
    if stored.width < 1 or stored.height < 1:
        return Fault("", "undecodable", f"the {format} header says {stored.width} x {stored.height} pixels")
    if stored.width * stored.height > max_pixels:
        return Fault("", "bomb", f"{stored.width} x {stored.height} pixels; at most {max_pixels} are decoded")
    pixels, most = stored.width * stored.height, max(MOST_DECODED, PLAIN_BYTES * max_pixels)
    # Nearly all images are so small that the decoder's memory does not matter.
    if 20 * pixels > most and (need := pixels * _decoder_bytes(data, format)) > most:
        detail = f"{stored.width} x {stored.height} pixels of {format} take {need // 10**6} MB to decode"
        return Fault("", "bomb", detail)
    width, height = stored[:2] if stored.orientation not in TURNED else stored[1::-1]
    return Header(width, height, format, stored.is_animated if format == "png" else is_animated(data, format))


def _decoder_bytes(data: bytes, format: str) -> int:
    """Return the bytes per pixel that decoding takes; a progressive JPEG's decoder holds all coefficients."""
    if format == "jpeg" and any(b"\xff" + bytes([frame]) in data for frame in (0xC2, 0xC6, 0xCA, 0xCE)):
        return PROGRESSIVE_BYTES
    return DECODER_BYTES.get(format, PLAIN_BYTES)


BMP_HEADERS = frozenset(struct.pack("<I", size) for size in (12, 16, 40, 52, 56, 64, 108, 124))


def format_of(data: bytes) -> str:
    """Detect an image's format (a name such as 'jpeg') from its magic bytes alone; return '' if unknown."""
    if data.startswith(b"\xff\xd8\xff") or data in (b"\xff\xd8", b"\xff"):
        return "jpeg"
    if data.startswith(PNG_MARK):
        return "png"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "gif"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "webp"
    if data.startswith((b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")):
        return "tiff"
    # A 'mif1' or 'msf1' file may list AVIF among its compatible brands.
    if data[4:8] == b"ftyp" and (
        data[8:12] in (b"avif", b"avis") or (data[8:12] in (b"mif1", b"msf1") and b"avif" in brands(data)[2:])
    ):
        return "avif"
    # 'BM' alone would match text, so the size of the DIB header must be a known one.
    if data.startswith(b"BM") and len(data) >= 18 and data[14:18] in BMP_HEADERS:
        return "bmp"
    return ""


def stored_size(data: bytes, format: str) -> StoredSize:
    """Parse the stored size and orientation of an image of ``format``. Raises TruncatedHeader or one of HOSTILE."""
    return PARSERS[format](data)


def _jpeg(data: bytes) -> StoredSize:
    """Parse the first frame header, and the orientation of the first EXIF segment before the pixels."""
    size, orientation = None, 0
    for marker, start, end in segments(data):
        if marker in FRAMES:
            size = size or struct.unpack_from(">HH", data, start + 3)
        elif marker == APP1 and not orientation and data[start + 2 : start + 8] == b"Exif\0\0":
            orientation = orientation_of(data[start + 2 : end])
        elif marker not in (SCAN, END):
            continue
        elif not size:
            raise ValueError("no frame before the data")
        if size and (orientation or marker in (SCAN, END)):
            break
    if not size:
        raise TruncatedHeader
    return StoredSize(size[1], size[0], orientation or 1)


def segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield (marker, start, end) of the segments of a JPEG up to END or a cut; a segment begins with its length.

    The coded data behind the header of a scan are a segment with the marker CODED. ``end`` may lie behind the data.
    """
    at = 2
    try:
        while True:
            if data[at] != 0xFF:
                at = data.index(b"\xff", at)
            if (marker := data[at + 1]) in ALONE:
                if marker == END:
                    yield marker, at + 2, at + 2
                    return
                at += 1 if marker == 0xFF else 2
                continue
            start = at + 2
            at = start + (data[start] << 8 | data[start + 1] or 2)
            yield marker, start, at
            if marker == SCAN:
                found = AFTER_SCAN.search(data, at)
                start, at = at, found.start() if found else len(data)
                yield CODED, start, at
    except (IndexError, ValueError):
        return


def _png(data: bytes) -> StoredSize:
    """Parse the IHDR chunk, and the orientation of an eXIf chunk that precedes the pixels."""
    if len(data) >= 16 and data[12:16] != b"IHDR":
        raise ValueError("no IHDR chunk first")
    width, height = struct.unpack_from(">II", data, 16)
    orientation, n_frames, n_first, is_animated = 0, 0, 1, False
    # An eXIf chunk may stand before or after the pixels; decoders agree only on the position before.
    for kind, at, end in _places(data):
        if kind in (b"IDAT", b"IEND"):
            is_animated = n_frames + n_first > 1  # a first image without fcTL counts as one more
            break
        if kind == b"eXIf" and not orientation:
            # Viewers ignore metadata whose checksum is wrong.
            is_right = zlib.crc32(data[at + 4 : end - 4]).to_bytes(4, "big") == data[end - 4 : end]
            orientation = orientation_of(data[at + 8 : end - 4]) if is_right else 1
        elif kind == b"acTL":
            n_frames = int.from_bytes(data[at + 8 : at + 12], "big")
        elif kind == b"fcTL":
            n_first = 0
    return StoredSize(width, height, orientation or 1, is_animated)


def _places(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield (kind, start, end) of at most MAX_BLOCKS chunks of a PNG; the last may end behind the data."""
    at = len(PNG_MARK)
    for _ in range(MAX_BLOCKS):
        if at + 8 > len(data):
            return
        length, kind = struct.unpack_from(">I4s", data, at)
        yield kind, at, at + 12 + length
        at += 12 + length


def _gif(data: bytes) -> StoredSize:
    """Parse the size of the canvas, which grows with a larger first frame; a GIF has no orientation."""
    width, height = struct.unpack_from("<HH", data, 6)
    at = next(_frames(data), None)
    if at is not None and at + 9 <= len(data):
        left, top, columns, rows = struct.unpack_from("<HHHH", data, at + 1)
        width, height = max(width, left + columns), max(height, top + rows)
    return StoredSize(width, height, 1)


def _bmp(data: bytes) -> StoredSize:
    """Parse the size from the DIB header, whose fields have 16 bits in the oldest version."""
    if data[14:18] == b"\x0c\0\0\0":
        return StoredSize(*struct.unpack_from("<HH", data, 18), 1)
    width, height = struct.unpack_from("<ii", data, 18)
    return StoredSize(width, abs(height), 1)  # a negative height means that the first row is the top one


def _webp(data: bytes) -> StoredSize:
    """Parse the size and orientation of a WebP file (RFC 9649); only an extended one can hold EXIF."""
    if (kind := data[12:16]) == b"VP8 ":
        if len(data) >= 26 and data[23:26] != b"\x9d\x01\x2a":
            raise ValueError("no VP8 key frame")
        width, height = struct.unpack_from("<HH", data, 26)
        return StoredSize(width & 0x3FFF, height & 0x3FFF, 1)
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return StoredSize((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1, 1)
    if kind == b"VP8X":
        low_w, high_w, low_h, high_h = struct.unpack_from("<HBHB", data, 24)
        exif = next((data[at + 8 : at + 8 + size] for name, at, size in webp_chunks(data) if name == b"EXIF"), b"")
        return StoredSize((low_w | high_w << 16) + 1, (low_h | high_h << 16) + 1, orientation_of(exif))
    if len(data) < 30:
        raise TruncatedHeader
    raise ValueError(f"no picture chunk first but {kind!r}")


def webp_chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield (name, place, number of bytes after its head of 8) for each chunk of a WebP file."""
    at = 12
    while at + 8 <= len(data):
        name, length = struct.unpack_from("<4sI", data, at)
        yield name, at, length
        at += 8 + length + length % 2


def _by_pillow(data: bytes) -> StoredSize:
    """Read size and orientation of a TIFF, whose size Pillow has already rotated, or an AVIF; both nest boxes."""
    with opened(data, format_of(data)) as image:
        orientation = image.getexif().get(ORIENTATION, 1) if image.format == "AVIF" else 1
        return StoredSize(*image.size, orientation if orientation in range(1, 9) else 1)


class _AnySize:
    """Lift Pillow's limit of pixels, one for the process, while any picture is open here: `inspect` has its own."""

    def __init__(self) -> None:
        self._lock, self._n_open, self._limit = threading.Lock(), 0, Image.MAX_IMAGE_PIXELS

    def __enter__(self) -> None:
        with self._lock:
            if not self._n_open:
                self._limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
            self._n_open += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._n_open -= 1
            if not self._n_open:
                Image.MAX_IMAGE_PIXELS = self._limit


ANY_SIZE = _AnySize()


@contextmanager
def opened(data: bytes, format: str) -> Iterator[Image.Image]:
    """Open an image with Pillow's plugin for ``format`` only, without its XMP, which would make Pillow rotate it."""
    with warnings.catch_warnings(), ANY_SIZE:
        warnings.simplefilter("ignore")  # warnings about odd tags; errors are raised
        with Image.open(io.BytesIO(data), formats=("JPEG", "MPO") if format == "jpeg" else (format.upper(),)) as image:
            image.info.pop("xmp", None)
            yield image


PARSERS: dict[str, Callable[[bytes], StoredSize]] = {
    "jpeg": _jpeg, "png": _png, "gif": _gif, "bmp": _bmp, "webp": _webp, "tiff": _by_pillow, "avif": _by_pillow,
}  # fmt: skip


def ends_early(data: bytes, format: str) -> bool:
    """Return whether the structure of a PNG, GIF, TIFF or AVIF shows that the file's end is missing; never raises."""
    try:
        if format == "png":
            for _ in chunks(data):
                pass
        elif format == "gif":
            if (at := next(_frames(data), None)) is None:
                return data[13 + palette_bytes(data[10])] == EXTENSION and not data.endswith(b";")
            return at + 10 + palette_bytes(data[at + 9]) > len(data)
        elif format == "avif":
            return _end_of_boxes(data) > len(data) or not (b"mdat" in data or b"idat" in data)
        elif format == "tiff":
            return _end_of_table(data) > len(data)
        return False
    except (TruncatedHeader, IndexError, OverflowError, struct.error):  # OverflowError: offsets of 64 bits in BigTIFF
        return True


def chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield (kind, bytes of the whole chunk) for each chunk of a PNG, up to IEND or bytes that are no chunk.

    Raises TruncatedHeader if a chunk or IEND is missing.
    """
    for kind, at, end in _places(data):
        if not kind.isalpha():
            return
        if end > len(data):
            break
        yield kind, data[at:end]
        if kind == b"IEND":
            return
    raise TruncatedHeader


def _end_of_table(data: bytes) -> int:
    """Return where the first table of tags of a TIFF or BigTIFF and the values of its tags end."""
    order, is_big = ">" if data.startswith(b"MM") else "<", data[2:4] in (b"+\0", b"\0+")
    (start,) = struct.unpack_from(order + ("Q" if is_big else "I"), data, 8 if is_big else 4)
    (n_tags,) = struct.unpack_from(order + ("Q" if is_big else "H"), data, start)
    first, size = start + (8 if is_big else 2), 20 if is_big else 12
    end = first + n_tags * size
    for at in range(first, end, size):
        kind, n_values, place = struct.unpack_from(order + ("HQQ" if is_big else "HII"), data, at + 2)
        n_bytes = n_values * TAG_BYTES.get(kind, 1)
        end = max(end, place + n_bytes) if n_bytes > (8 if is_big else 4) else end
    return end


def _end_of_boxes(data: bytes) -> int:
    """Return where the last box of an ISO file ends, by its own size."""
    at = 0
    while at < len(data):
        (size,) = struct.unpack_from(">I", data, at)
        if size == 0:  # up to the end of the file
            return len(data)
        at += max(8, struct.unpack_from(">Q", data, at + 8)[0] if size == 1 else size)
    return at


def orientation_of(exif: bytes) -> int:
    """Return the orientation (1 to 8) in an EXIF block, with or without its 'Exif' prefix; 1 if absent or broken."""
    block = exif.removeprefix(b"Exif\0\0")
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(block[:4])
    if not order or len(block) < 10:
        return 1
    (start,) = struct.unpack_from(order + "I", block, 4)
    if start + 2 > len(block):
        return 1
    (count,) = struct.unpack_from(order + "H", block, start)
    for at in range(start + 2, min(start + 2 + 12 * count, len(block) - 11), 12):
        tag, kind, _, value = struct.unpack_from(order + "HHIH", block, at)
        if tag == ORIENTATION:
            return value if kind == SHORT and 1 <= value <= 8 else 1
    return 1


def read_exif(data: bytes) -> dict[str, str]:
    """Return the base and Exif directories of an image as {tag name: text}: {"Make": "…", "FNumber": "2.8"}.

    At most MOST_TAGS tags of MOST_LETTERS characters each; {} if there are none or the block is broken. Never raises.
    """
    if not any(mark in data for mark in MARKS):
        return {}
    try:
        with ANY_SIZE, Image.open(io.BytesIO(data)) as image:
            block = image.getexif()
            tags = {**block, **block.get_ifd(ExifTags.IFD.Exif)}
    except HOSTILE:
        return {}
    named = {ExifTags.TAGS.get(tag, str(tag)): value for tag, value in tags.items()}
    shown = {name: _printable(value) for name, value in named.items() if name not in ("MakerNote", "UserComment")}
    return {name: shown[name] for name in sorted(name for name in shown if shown[name])[:MOST_TAGS]}


def _printable(value: object) -> str:
    """Convert a tag's value to printable text of at most MOST_LETTERS characters; non-ASCII bytes become hex."""
    if isinstance(value, bytes):
        value = value.decode("latin-1") if value.isascii() else value[:32].hex()
    text = "".join(letter for letter in str(value) if letter.isprintable())
    return text.encode("utf-8", "replace").decode().strip()[:MOST_LETTERS]


def is_animated(data: bytes, format: str) -> bool:
    """Return whether an image file has two frames or more; never raises.

    ``format`` is a name that `format_of` returns. A truncated file is judged by the bytes present. The
    pages of a TIFF and the views of an MPO do not count as frames. The call takes 1 to 4 microseconds; a GIF is read to
    the end of its first frame, at 5 MB a millisecond.
    """
    walk = WALKS.get(format)
    try:
        return walk is not None and walk(data)
    except (IndexError, ValueError, struct.error):
        return False


def _frames(data: bytes) -> Iterator[int]:
    """Yield the place of each image descriptor of a GIF, up to its trailer or MAX_BLOCKS blocks."""
    at, is_inside = 13 + palette_bytes(data[10]), False
    for _ in range(MAX_BLOCKS):
        if at >= len(data):
            return
        kind = data[at]
        if is_inside:
            at += kind + 1
            is_inside = kind > 0
        elif kind == FRAME:
            yield at
            at += 11 + palette_bytes(data[at + 9])
            is_inside = True
        elif kind == EXTENSION:
            at += 2
            is_inside = True
        elif kind == TRAILER:
            break
        else:
            at += 1  # padding, which decoders skip


def palette_bytes(flags: int) -> int:
    """Return the bytes of a GIF's colour table, by the ``flags`` of its descriptor: 3 per colour, 0 without a table."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _is_animated_webp(data: bytes) -> bool:
    """Return whether a WebP file is animated: a VP8X header with the animation flag, and two ANMF frames (RFC 9649)."""
    if data[12:16] != b"VP8X" or not data[20] & 2:
        return False
    frames = (name for name, *_ in islice(webp_chunks(data), MAX_BLOCKS) if name == b"ANMF")
    return len(list(islice(frames, 2))) == 2


def brands(data: bytes) -> list[bytes]:
    """Return major brand, its version and compatible brands in the first 256 bytes of an ISO file (AVIF, HEIC)."""
    end = min(int.from_bytes(data[:4], "big"), 256)
    return [data[at : min(at + 4, end)] for at in range(8, end, 4)]


WALKS: dict[str, Callable[[bytes], bool]] = {
    "gif": lambda data: len(list(islice(_frames(data), 2))) == 2,  # has a second image descriptor (GIF89a)
    "png": lambda data: _png(data).is_animated,
    "webp": _is_animated_webp,
    "avif": lambda data: b"avis" in brands(data),  # an image sequence (AVIF 1.1, section 6)
}
