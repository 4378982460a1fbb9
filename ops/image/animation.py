"""Tell from chunk headers, without decoding, whether an image file holds an animation (two frames or more)."""

from __future__ import annotations

import struct
from collections.abc import Callable

TRAILER, EXTENSION, FRAME = 0x3B, 0x21, 0x2C
# A GIF of the largest size that is taken has 200,000 blocks; a hostile one could have 25 million empty ones.
MAX_BLOCKS = 400_000


def is_animated(data: bytes, format: str) -> bool:
    """Whether a file has two frames or more; ``format`` as of ops.image.header. A cut file is judged by what is there.

    The pages of a TIFF and the views of an MPO are no animation. Never raises. 1 to 4 microseconds; a GIF is walked to
    the end of its first frame, at 5 MB a millisecond.
    """
    walk = WALKS.get(format)
    try:
        return walk is not None and walk(data)
    except (IndexError, struct.error):
        return False


def _gif(data: bytes) -> bool:
    """Whether there is a second image descriptor (GIF89a)."""
    at, frames, is_inside = 13 + _palette(data[10]), 0, False
    for _ in range(MAX_BLOCKS):
        kind = data[at]
        if is_inside:
            at += kind + 1
            is_inside = kind > 0
        elif kind == FRAME:
            frames += 1
            if frames == 2:
                return True
            at += 11 + _palette(data[at + 9])
            is_inside = True
        elif kind == EXTENSION:
            at += 2
            is_inside = True
        elif kind == TRAILER:
            break
        else:
            at += 1  # padding, which readers pass over
    return False


def _palette(flags: int) -> int:
    """Bytes of the colour table that a descriptor's flags announce."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _png(data: bytes) -> bool:
    """Whether acTL before the pixels (APNG) counts two frames; a first picture without fcTL counts as one more."""
    at, counted, is_first = 8, 0, False
    for _ in range(MAX_BLOCKS):
        length, kind = struct.unpack_from(">I4s", data, at)
        if kind in (b"IDAT", b"IEND"):
            break
        if kind == b"acTL":
            (counted,) = struct.unpack_from(">I", data, at + 8)
        is_first |= kind == b"fcTL"
        at += length + 12
    return counted + (not is_first) > 1


def _webp(data: bytes) -> bool:
    """Whether an extended file has the animation flag and two frames behind it (RFC 9649)."""
    if data[12:16] != b"VP8X" or not data[20] & 2:
        return False
    at, frames = 12, 0
    for _ in range(MAX_BLOCKS):
        name, length = struct.unpack_from("<4sI", data, at)
        frames += name == b"ANMF"
        if frames == 2:
            return True
        at += 8 + length + length % 2
    return False


def _avif(data: bytes) -> bool:
    """Whether 'avis', an image sequence, is among the brands of the first box (AVIF 1.1, section 6)."""
    size = int.from_bytes(data[:4], "big")
    brands = data[8 : min(size, 256)]
    return b"avis" in [brands[at : at + 4] for at in range(0, len(brands), 4)]


WALKS: dict[str, Callable[[bytes], bool]] = {"gif": _gif, "png": _png, "webp": _webp, "avif": _avif}
