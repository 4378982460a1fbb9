"""Compute the pixel scores directly with numpy and imagehash, for the peers of ``image_pass``."""

from __future__ import annotations

import imagehash
import numpy as np
from PIL import Image

SIDE = 224
NAMES = ("sharpness", "brightness", "colourfulness", "image_entropy")


def scores(pixels: np.ndarray) -> dict[str, float]:
    """Return the four scores of a picture, uint8 (h, w, 3)."""
    gray = np.asarray(Image.fromarray(pixels).convert("L")).astype(np.float32)
    laplacian = gray[:-2, 1:-1] + gray[2:, 1:-1] + gray[1:-1, :-2] + gray[1:-1, 2:] - 4 * gray[1:-1, 1:-1]
    red, green, blue = (pixels[..., channel].astype(np.float32) for channel in range(3))
    one, other = red - green, (red + green) / 2 - blue
    shares = np.histogram(gray, 256, (0, 256))[0] / gray.size
    shares = shares[shares > 0]
    return {
        "sharpness": float(laplacian.var()),
        "brightness": float(gray.mean() / 255),
        "colourfulness": float(np.hypot(one.std(), other.std()) + 0.3 * np.hypot(one.mean(), other.mean())),
        "image_entropy": float(-(shares * np.log2(shares)).sum()),
    }


def phash(pixels: np.ndarray) -> str:
    """Return the perceptual hash as hex digits."""
    return str(imagehash.phash(Image.fromarray(pixels)))
