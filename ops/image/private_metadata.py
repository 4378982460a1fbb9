"""Remove private metadata from encoded pictures byte by byte, without decoding or encoding their pixels.

What renders the picture stays: pixels, palettes, colour profiles, orientation, animation. All else goes, known or not:
EXIF with GPS, owner and serial numbers, XMP, IPTC, comments, text chunks, previews, C2PA manifests, and bytes behind
the picture's end. A JPEG, PNG, WebP or GIF gets shorter. TIFF and AVIF refer to places in the file, so there the bytes
are zeroed in place. A BMP has no such fields.
"""

import struct
import zlib
from collections.abc import Callable, Iterator

from pairmill.ops.image import header
from pairmill.ops.image.header import TruncatedHeader

# JPEG: APP0 to APP15 and COM, of which these stay: density, colour profile, colour transform.
_APPS, _COMMENT, _END = range(0xE0, 0xF0), 0xFE, 0xD9
_JPEG_KEPT = ((0xE0, b"JFIF\0"), (0xE2, b"ICC_PROFILE\0"), (0xEE, b"Adobe"))
# Ancillary chunks of PNG (third edition) that change how it is shown; critical ones begin with a capital letter.
_PNG_KEPT = frozenset((b"tRNS", b"gAMA", b"cHRM", b"sRGB", b"iCCP", b"cICP", b"mDCV", b"cLLI", b"sBIT", b"bKGD",
                       b"pHYs", b"hIST", b"sPLT", b"acTL", b"fcTL", b"fdAT"))  # fmt: skip
_WEBP_KEPT = frozenset((b"VP8X", b"VP8 ", b"VP8L", b"ALPH", b"ANIM", b"ANMF", b"ICCP"))
_WEBP_EXIF, _WEBP_XMP = 0x08, 0x04  # flags of VP8X
_GIF_CONTROL = 0xF9
_GIF_KEPT = (b"NETSCAPE2.0", b"ANIMEXTS1.0", b"ICCRGBG1012")  # loops and a colour profile
# Tags of TIFF 6.0 and its technical notes without which a picture is read or shown otherwise.
_SUB_TABLES, _POINTERS = 330, (34665, 34853, 40965)  # EXIF, GPS, interoperability
_TIFF_KEPT = frozenset((*range(254, 260), *range(262, 267), 273, 274, *range(277, 285), *range(288, 294), 296, 297, 301,
                        *range(317, 331), 332, 334, 336, *range(338, 348), *range(512, 522), *range(529, 533), 32997,
                        33421, 33422, 34675, 50674))  # fmt: skip


def remove_metadata(data: bytes) -> bytes | None:
    """Return the picture without private metadata; ``data`` itself if it has none, None if it cannot be removed.

    It cannot be removed from a file of unknown format or broken structure, nor from a TIFF or AVIF that decodes
    differently afterwards. Never raises.
    """
    format = header.format_of(data)
    try:
        cleaned = _CLEANERS[format](data)
        is_safe = cleaned == data or format not in ("tiff", "avif") or _shown(cleaned, format) == _shown(data, format)
    except (*header.HOSTILE, TruncatedHeader):
        return None
    return cleaned if is_safe else None


def _shown(data: bytes, format: str) -> tuple[object, ...]:
    """Decode the first frame; return its size, mode, pixels, orientation and colour profile."""
    with header.opened(data, format) as image:
        image.load()
        oriented = image.getexif().get(header.ORIENTATION, 1)
        return image.size, image.mode, image.tobytes(), oriented, image.info.get("icc_profile")


def _exif(orientation: int) -> bytes:
    """Return an EXIF block of the orientation alone: a TIFF of one tag, 26 bytes."""
    return struct.pack("<4sIHHHIHHI", b"II*\0", 8, 1, header.ORIENTATION, header.SHORT, 1, orientation, 0, 0)


def _jpeg(data: bytes) -> bytes:
    """Leave out segments, and what follows the end: further pictures, whose EXIF is their own, or a video."""
    orientation, parts, first = header.stored_size(data, "jpeg").orientation, [], 0
    for marker, start, end in header.segments(data):
        if marker == _END:
            return b"".join((*parts, data[first:start]))
        is_private = marker == _COMMENT or marker in _APPS
        if is_private and not any(marker == kept and data.startswith(name, start + 2) for kept, name in _JPEG_KEPT):
            parts.append(data[first : start - 2])
            if orientation > 1:
                block = b"Exif\0\0" + _exif(orientation)
                parts.append(b"\xff\xe1" + struct.pack(">H", len(block) + 2) + block)
                orientation = 1
            first = end
    return b"".join((*parts, data[first:]))


def _png(data: bytes) -> bytes:
    """Leave out chunks; the orientation gets an eXIf chunk before the pixels, where all decoders read it."""
    orientation, parts, kind = header.stored_size(data, "png").orientation, [header.PNG_MARK], b""
    for kind, chunk in header.chunks(data):
        if kind == b"IDAT" and orientation > 1:
            body = b"eXIf" + _exif(orientation)
            parts.append(struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body)))
            orientation = 1
        if kind[:1].isupper() or kind in _PNG_KEPT:
            parts.append(chunk)
    if kind != b"IEND":
        raise TruncatedHeader
    return b"".join(parts)


def _webp(data: bytes) -> bytes:
    """Leave out chunks, and clear their flags in VP8X (RFC 9649)."""
    orientation, parts = header.stored_size(data, "webp").orientation, [b"WEBP"]
    end = min(8 + int.from_bytes(data[4:8], "little"), len(data))
    for name, at, length in header.webp_chunks(data[:end]):
        chunk = data[at : at + 8 + length]
        if at + 8 + length > end and name not in (b"EXIF", b"XMP "):
            raise TruncatedHeader  # a damaged length: decoders show a frame before it only while the rest is there
        if name == b"VP8X":
            flags = chunk[8] & ~(_WEBP_EXIF | _WEBP_XMP) | (_WEBP_EXIF if orientation > 1 else 0)
            chunk = chunk[:8] + bytes([flags]) + chunk[9:]
        if name in _WEBP_KEPT:
            parts += [chunk, b"\0" * (len(chunk) % 2)]
    if orientation > 1:
        parts.append(struct.pack("<4sI", b"EXIF", 26) + _exif(orientation))
    body = b"".join(parts)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def _gif(data: bytes) -> bytes:
    """Leave out extensions but those that control frames, loops and colours (GIF89a, appendix B)."""
    at, parts, first = 13 + header.palette_bytes(data[10]), [], 0
    while at < len(data) and data[at] != header.TRAILER:
        start, kind = at, data[at]
        if kind not in (header.FRAME, header.EXTENSION):
            at += 1  # padding, which decoders skip
            continue
        at += 11 + header.palette_bytes(data[at + 9]) if kind == header.FRAME else 2
        while data[at]:
            at += data[at] + 1
        at += 1
        is_kept = data[start + 1] == _GIF_CONTROL or data.startswith(_GIF_KEPT, start + 3)
        if kind == header.EXTENSION and not is_kept:
            parts.append(data[first:start])
            first = at
    return b"".join((*parts, data[first : at + 1]))


def _tiff(data: bytes) -> bytes:
    """Take tags out of each table, and zero their values; no byte moves but the entries of a table."""
    order, is_big = ">" if data.startswith(b"MM") else "<", data[2:4] in (b"+\0", b"\0+")
    word, size, count = ("Q", 20, "Q") if is_big else ("I", 12, "H")
    n_word, n_count = struct.calcsize(f"{order}{word}"), struct.calcsize(f"{order}{count}")
    tables, seen, n_seen = [(struct.unpack_from(order + word, data, 8 if is_big else 4)[0], _TIFF_KEPT)], set[int](), 0
    unused, written = [], []
    while tables:
        start, allowed = tables.pop()
        if not start or start in seen:
            continue
        seen.add(start)
        (n_tags,) = struct.unpack_from(order + count, data, start)
        first, end, kept = start + n_count, start + n_count + n_tags * size, []
        n_seen += n_tags
        if n_seen > header.MAX_BLOCKS:
            raise TruncatedHeader
        for at in range(first, end, size):
            tag, kind, n_values, place = struct.unpack_from(f"{order}HH{word}{word}", data, at)
            n_bytes = n_values * header.TAG_BYTES.get(kind, 1)
            where = place if n_bytes > n_word else at + size - n_word
            if tag == _SUB_TABLES or tag in _POINTERS:
                pointer = word if n_bytes == n_values * n_word else "I"
                inner = struct.unpack_from(f"{order}{n_values}{pointer}", data, where)
                tables += [(each, _TIFF_KEPT if tag == _SUB_TABLES else frozenset[int]()) for each in inner]
            if tag in allowed:
                kept.append(data[at : at + size])
            elif where == place:
                unused.append((place, place + n_bytes))
        (following,) = struct.unpack_from(order + word, data, end)
        tables.append((following, allowed))
        unused.append((start, end + n_word))
        written.append((start, struct.pack(order + count, len(kept))))
        written.append((first, b"".join(kept) + struct.pack(order + word, following)))
    return _overwritten(data, unused, written)


def _overwritten(data: bytes, unused: list[tuple[int, int]], written: list[tuple[int, bytes]]) -> bytes:
    """Return ``data`` with zeros in ``unused``, then ``written``. Raises TruncatedHeader for hostile overlaps."""
    out, ranges = bytearray(data), [(start, min(end, len(data))) for start, end in unused if start < len(data)]
    if sum(end - start for start, end in ranges) > 2 * len(data):
        raise TruncatedHeader
    for start, end in ranges:
        out[start:end] = bytes(end - start)
    for start, new in written:
        out[start : start + len(new)] = new
    return bytes(out)


def _avif(data: bytes) -> bytes:
    """Zero the items of EXIF and XMP and rename their types, which readers then skip; the orientation is a property."""
    boxes, unused, written = [(0, len(data))], [], []
    while boxes:
        for kind, start, end in _boxes(data, *boxes.pop()):
            if kind in (b"moov", b"trak"):
                boxes.append((start, end))
            elif kind in (b"uuid", b"udta"):
                written.append((data.rindex(kind, 0, start), b"free"))
                unused.append((start, end))
            elif kind == b"meta":
                for kind_at, ranges in _private_items(data, start + 4, end):
                    written.append((kind_at, b"skip"))
                    unused += ranges
    return _overwritten(data, unused, written)


def _boxes(data: bytes, at: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield (kind, start, end) of the body of each box of ISO 14496-12 between two places."""
    while at + 8 <= end:
        size, kind = struct.unpack_from(">I4s", data, at)
        start = at + (16 if size == 1 else 8)
        stop = end if size == 0 else at + (struct.unpack_from(">Q", data, at + 8)[0] if size == 1 else size)
        if not start <= stop <= end:
            raise TruncatedHeader
        yield kind, start, stop
        at = stop


def _private_items(data: bytes, start: int, end: int) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """Yield (place of its type, ranges of its bytes) of each EXIF or XMP item of a meta box with this body."""
    found = {kind: (at, stop) for kind, at, stop in _boxes(data, start, end)}
    (infos, infos_end), (at, locations_end), inside = found[b"iinf"], found[b"iloc"], found.get(b"idat", (0, 0))[0]
    private: dict[int, int] = {}
    for _, info, _ in _boxes(data, infos + (8 if data[infos] else 6), infos_end):
        kind_at = info + (10 if data[info] >= 3 else 8)  # its version decides how wide an id is
        if data[info] >= 2 and data[kind_at : kind_at + 4] in (b"Exif", b"mime", b"uri "):
            private[int.from_bytes(data[info + 4 : kind_at - 2], "big")] = kind_at

    def number(n_bytes: int) -> int:
        nonlocal at
        at += n_bytes
        if at > locations_end:
            raise TruncatedHeader
        return int.from_bytes(data[at - n_bytes : at], "big")

    version, sizes = number(4) >> 24, number(2)
    n_offset, n_length, n_base, n_index = (sizes >> shift & 15 for shift in (12, 8, 4, 0))
    for _ in range(number(4 if version == 2 else 2)):
        item, method, ranges = number(4 if version == 2 else 2), number(2) & 15 if version else 0, []
        number(2)  # which file has the data: this one
        base = number(n_base) + (inside if method == 1 else 0)
        for _ in range(number(2)):
            number(n_index if version else 0)
            first, length = base + number(n_offset), number(n_length)
            ranges.append((first, first + length if length else len(data)))
        if item in private:
            yield private[item], ranges


_CLEANERS: dict[str, Callable[[bytes], bytes]] = {
    "jpeg": _jpeg, "png": _png, "webp": _webp, "gif": _gif, "tiff": _tiff, "avif": _avif, "bmp": lambda data: data,
}  # fmt: skip
