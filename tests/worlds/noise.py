"""A picture of random pixels, which no codec makes small."""

import io

import numpy as np
from PIL import Image


def picture(n: int) -> bytes:
    pixels = np.random.default_rng(n).integers(0, 256, (96, 96, 3), np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()
