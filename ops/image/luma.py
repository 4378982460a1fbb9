"""Brightness of pixels by ITU-R BT.601, the weights of JPEG and of Pillow's mode 'L'."""

from __future__ import annotations

import numpy as np
from PIL import Image


def luma(pixels: np.ndarray) -> np.ndarray:
    """uint8 (h, w, 3) to uint8 (h, w), rounded: Pillow's mode 'L', fixed-point and so the same anywhere."""
    return np.asarray(Image.fromarray(np.ascontiguousarray(pixels)).convert("L"))
