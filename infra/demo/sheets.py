"""Read the named pictures of the demo world, ``glyphs/glyphs.json`` and its sheets, as one array."""

import json
from pathlib import Path

import numpy as np
from PIL import Image

FOLDER = Path(__file__).parent / "glyphs"


def names(folder: Path = FOLDER) -> list[str]:
    """Return the lower-case names, in the order of the sheets."""
    return [glyph["name"] for glyph in json.loads((folder / "glyphs.json").read_text())["glyphs"]]


def pictures(folder: Path = FOLDER) -> np.ndarray:
    """Return the pictures in the order of ``names``: (n, side, side, 4) uint8 RGBA with straight alpha."""
    index = json.loads((folder / "glyphs.json").read_text())
    side, across, n = index["side"], index["across"], len(index["glyphs"])
    rows = []
    for sheet in sorted(folder.glob("sheet_*.webp")):
        pixels = np.asarray(Image.open(sheet).convert("RGBA"))
        cells = pixels.reshape(across, side, across, side, 4).swapaxes(1, 2)
        rows.append(cells.reshape(across * across, side, side, 4))
    return np.concatenate(rows)[:n]
