"""Decode as one would write it without a thought for speed: Pillow from end to end."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image, ImageOps


def decode_slowly(data: bytes, side: int) -> np.ndarray:
    """uint8 (h, w, 3) with the shorter side at ``side``; upright RGB pictures without transparency, up to 8 : 1."""
    with Image.open(io.BytesIO(data)) as image:
        upright = ImageOps.exif_transpose(image).convert("RGB")
    shorter = min(upright.size)
    size = tuple(edge * side // shorter for edge in upright.size)
    return np.asarray(upright.resize(size, Image.Resampling.BICUBIC))
