"""Generated images with edges, gradients and colours, and their encodings."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image, ImageDraw


def picture(seed: int = 0, size: tuple[int, int] = (320, 240), shapes: int = 12) -> Image.Image:
    """Return an RGB image of random ellipses and lines over a gradient; ``size`` is (width, height)."""
    random = np.random.default_rng(seed)
    width, height = size
    rows, columns = np.mgrid[0:height, 0:width]
    ramp = (rows / height + columns / width)[..., None] * random.uniform(20, 110, 3) + random.uniform(0, 60, 3)
    image = Image.fromarray(ramp.clip(0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    for _ in range(shapes):
        x, y = random.uniform(0, width), random.uniform(0, height)
        a, b = random.uniform(width / 20, width / 3), random.uniform(height / 20, height / 3)
        colour = tuple(int(level) for level in random.integers(0, 256, 3))
        if random.random() < 0.6:
            draw.ellipse((x - a, y - b, x + a, y + b), fill=colour)
        else:
            draw.line((x - a, y - b, x + a, y + b), fill=colour, width=max(1, int(width / 40)))
    return image


def encode(image: Image.Image, format: str = "JPEG", **options) -> bytes:
    """Encode an image."""
    out = io.BytesIO()
    image.save(out, format, **options)
    return out.getvalue()


def turned_exif(orientation: int) -> Image.Exif:
    """Return EXIF data with this orientation."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif
