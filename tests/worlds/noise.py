"""An image of random pixels, which no codec can compress."""

import io

import numpy as np
from PIL import Image


def picture(n: int) -> bytes:
    """Return a PNG of 96 x 96 random pixels."""
    pixels = np.random.default_rng(n).integers(0, 256, (96, 96, 3), np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()
