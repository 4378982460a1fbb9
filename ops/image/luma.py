"""Brightness of pixels by ITU-R BT.601, the weights of JPEG and of Pillow's mode 'L'."""

from __future__ import annotations

import numpy as np

WEIGHTS = (0.299, 0.587, 0.114)


def luma(pixels: np.ndarray) -> np.ndarray:
    """uint8 (h, w, 3) to uint8 (h, w), rounded; in 16-bit fixed point as Pillow does it, so equal to its mode 'L'."""
    wide = pixels.astype(np.uint32)
    return ((wide[..., 0] * 19595 + wide[..., 1] * 38470 + wide[..., 2] * 7471 + 0x8000) >> 16).astype(np.uint8)
