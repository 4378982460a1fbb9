"""Read and apply EXIF orientation, 1 (upright) to 8 (EXIF 2.32, tag 0x0112 of the TIFF block)."""

from __future__ import annotations

import struct

import numpy as np

ORIENTATION = 0x0112
SHORT = 3
# Orientations that swap rows and columns.
TURNED = (5, 6, 7, 8)


def orientation_of(exif: bytes) -> int:
    """Read the orientation from an EXIF block, with or without its 'Exif' prefix; 1 if absent or broken."""
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


def upright(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """Rotate and flip stored pixels (h, w, ...) for display by their EXIF orientation; return a view."""
    if orientation in TURNED:
        pixels = pixels.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return pixels
