"""Small images of random pixels."""

from pathlib import Path

import numpy as np
from PIL import Image


def add_pictures(folder: Path, first: int, end: int) -> None:
    """Write the JPEGs number ``first`` to ``end`` - 1 into ``folder``."""
    folder.mkdir(exist_ok=True)
    for n in range(first, end):
        pixels = np.random.default_rng(n).integers(0, 255, (8, 10, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((120, 96)).save(folder / f"{n:04d}.jpg")
