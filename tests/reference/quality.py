"""Image quality pixel by pixel, as the formulas are written."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
from PIL import Image


def _luma(pixels: np.ndarray) -> list[list[int]]:
    return np.asarray(Image.fromarray(pixels).convert("L")).astype(int).tolist()


def _variance(values: list[float]) -> float:
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / len(values)


def sharpness(pixels: np.ndarray) -> float:
    y = _luma(pixels)
    inside = [(r, c) for r in range(1, len(y) - 1) for c in range(1, len(y[0]) - 1)]
    edges = [y[r - 1][c] + y[r + 1][c] + y[r][c - 1] + y[r][c + 1] - 4 * y[r][c] for r, c in inside]
    return _variance(edges) if edges else 0.0


def brightness(pixels: np.ndarray) -> float:
    levels = [level for row in _luma(pixels) for level in row]
    return sum(levels) / len(levels) / 255


def colourfulness(pixels: np.ndarray) -> float:
    triples = [(int(r), int(g), int(b)) for row in pixels for r, g, b in row]
    red_green = [r - g for r, g, b in triples]
    yellow_blue = [0.5 * (r + g) - b for r, g, b in triples]
    spread = math.sqrt(_variance(red_green) + _variance(yellow_blue))
    n = len(triples)
    return spread + 0.3 * math.sqrt((sum(red_green) / n) ** 2 + (sum(yellow_blue) / n) ** 2)


def image_entropy(pixels: np.ndarray) -> float:
    counts = Counter(level for row in _luma(pixels) for level in row)
    total = sum(counts.values())
    return -sum(count / total * math.log2(count / total) for count in counts.values())
