"""The perceptual hash step by step: luma, Lanczos to 32 x 32, DCT, signs about the median."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from PIL import Image


@cache
def _weights(size: int, at: int) -> list[float]:
    scale = size / 32
    stretch = max(scale, 1.0)

    def sinc(x: float) -> float:
        return 1.0 if x == 0 else math.sin(math.pi * x) / (math.pi * x)

    distances = [(sample + 0.5 - (at + 0.5) * scale) / stretch for sample in range(size)]
    raw = [sinc(x) * sinc(x / 3) if abs(x) < 3 else 0.0 for x in distances]
    return [weight / sum(raw) for weight in raw]


def _to_32(values: list[list[float]]) -> list[list[float]]:
    """Rows shortened or lengthened to 32 samples."""
    return [
        [sum(w * v for w, v in zip(_weights(len(row), at), row, strict=True)) for at in range(32)] for row in values
    ]


def _transposed(values: list[list[float]]) -> list[list[float]]:
    return [list(column) for column in zip(*values, strict=True)]


def slow_phash(pixels: np.ndarray) -> tuple[int, int]:
    """The hash, and a mask of the bits that rounding may decide: a symmetric picture has pairs of equal coefficients,
    and where the median stands between such a pair either may lie above it. All are in doubt where one coefficient is
    as good as at the bound below which it counts as none."""
    gray = np.asarray(Image.fromarray(pixels).convert("L")).astype(float).tolist()
    grid = _transposed(_to_32(_transposed(_to_32(gray))))
    cosine = [[math.cos(math.pi * k * (2 * n + 1) / 64) for n in range(32)] for k in range(8)]
    low = [
        [4 * sum(cosine[u][r] * cosine[v][c] * grid[r][c] for r in range(32) for c in range(32)) for v in range(8)]
        for u in range(8)
    ]
    flat = [0.0 if abs(value) < 1.0 else value for row in low for value in row]
    middle = sorted(flat)
    median = (middle[31] + middle[32]) / 2
    rounding = 1e-6 * max(abs(value) for row in low for value in row)  # of float32, ten times over
    at_bound = any(abs(abs(value) - 1.0) <= rounding for row in low for value in row)
    doubtful = [at_bound or 0 < abs(value - median) <= rounding or value == median != 0 for value in flat]
    return _bits([value > median for value in flat]), _bits(doubtful)


def _bits(marks: list[bool]) -> int:
    return int("".join("1" if mark else "0" for mark in marks), 2)
