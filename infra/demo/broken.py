"""Make files that no curator can use, one function a fault: ``(rng, good bytes) -> (bytes, extension)``."""

import struct
import zlib
from functools import cache

import numpy as np


def truncated(rng: np.random.Generator, good: bytes) -> bytes:
    """Return the first 25-65 % of a good file: the header is complete, the pixels are not."""
    return good[: int(len(good) * rng.uniform(0.25, 0.65))]


def empty(rng: np.random.Generator, good: bytes) -> bytes:
    """Return no bytes."""
    return b""


def page(rng: np.random.Generator, good: bytes) -> bytes:
    """Return what a server sends for a missing picture: HTML under a picture's name."""
    return f"<!DOCTYPE html>\n<html><head><title>404</title></head><body>Not found ({rng.integers(10**6)}).</body></html>\n".encode()


@cache
def _blank(width: int, height: int) -> bytes:
    """Return the compressed rows of a white 1-bit PNG of this size; filter bytes are 0."""
    row = b"\x00" + b"\xff" * ((width + 7) // 8)
    return zlib.compress(row * height, 9)


def bomb(rng: np.random.Generator, good: bytes) -> bytes:
    """Return a valid PNG of 30000 x 30000 pixels in some 100 kB; 900 megapixels once decoded."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 30000, 30000, 1, 0, 0, 0, 0)
    note = b"Comment\x00" + str(rng.integers(10**9)).encode()  # makes each bomb's bytes unique
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        chunk(k, d) for k, d in ((b"IHDR", header), (b"tEXt", note), (b"IDAT", _blank(30000, 30000)), (b"IEND", b""))
    )


def missing(rng: np.random.Generator, good: bytes) -> bytes:
    """Return no bytes: the page refers to a file that does not exist."""
    return b""


# kind -> (maker, extension or '' to keep the good file's, share of all pictures)
FAULTS = {
    "truncated": (truncated, "", 0.008),
    "empty": (empty, "jpg", 0.004),
    "html": (page, "jpg", 0.004),
    "bomb": (bomb, "png", 0.002),
    "missing": (missing, "jpg", 0.006),
}
