"""Compute a 64-bit perceptual hash: near copies differ in few bits, whatever their size, format or quality.

A hash ignores colour. For pictures that may differ in colour only (logos and drawings of few gray levels), the mean
colours of 8 x 8 cells are stored too.
"""

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from pairmill.ops.batch import Batch
from pairmill.ops.image.image_quality import luma_entropy, with_luma

if TYPE_CHECKING:
    import torch

GRID = 32
LOW = 8
# Coefficients below this are the noise of flat images (0.00025 of a gray level over the whole grid).
FLAT = 1.0
# A picture whose luma has at most this entropy (bits) is flat: shapes have 0.2 to 2.3, one in a JPEG of quality 20 up
# to 3.5, photographs 5 to 8.
FLAT_BITS = 4.0
CELLS = 8


@dataclass(frozen=True)
class PerceptualHash:
    """Read ``luma``, or ``pixels`` (list of uint8 (h, w, 3)) without it; add ``phash`` uint64 and ``flat_colours``.

    Each bit tells whether one of the 8 x 8 lowest DCT-II coefficients of the luma on a 32 x 32 grid is above their
    median, row by row from the highest bit. This is the algorithm of imagehash.phash, applied to the shared small image
    instead of the original (mean difference below 1 bit). Compare hashes by Hamming distance. A flat image has one bit
    set, whatever its colour (black none), so all flat images look alike. `mirrored_edges` compares mirrored images.

    ``flat_colours``: the mean RGB of 8 x 8 cells of a flat image (FLAT_BITS), 384 hex digits; else None.
    """

    version: int = 1

    def __call__(self, batch: Batch) -> Batch:
        """Return ``batch`` with both columns added."""
        grays = with_luma(batch)["luma"]
        low = np.array([_low(gray) for gray in grays]).reshape(-1, LOW * LOW)
        low[np.abs(low) < FLAT] = 0.0
        bits = low > np.median(low, axis=1, keepdims=True)
        pairs = zip(batch.get("pixels", [None] * len(grays)), grays, strict=True)
        return batch | {
            "phash": np.packbits(bits, axis=1).view(">u8").astype(np.uint64).reshape(-1),
            "flat_colours": [_flat_colours(*pair) for pair in pairs],
        }


def _flat_colours(pixels: np.ndarray | None, gray: np.ndarray) -> str | None:
    """Return the mean RGB of a flat image's cells, row by row, in hex."""
    # Every third row and column: the histogram of the whole takes 0.04 ms more, of 2.5 ms a picture.
    if pixels is None or luma_entropy(np.ascontiguousarray(gray[::3, ::3])) > FLAT_BITS:
        return None
    small = Image.fromarray(np.ascontiguousarray(pixels)).resize((CELLS, CELLS), Image.Resampling.BOX)
    return small.tobytes().hex()


def _low(luma: np.ndarray) -> np.ndarray:
    """Compute the lowest (8, 8) DCT coefficients of one image; one matrix per side does both resize and DCT."""
    import torch  # imported here for the same reason as in Decode

    gray = torch.from_numpy(luma.astype(np.float32))
    height, width = gray.shape
    # By torch, whose threads the caller has limited to one; numpy's BLAS would use every core.
    return (_basis(height) @ gray @ _basis(width).T).double().numpy()


@cache
def _basis(size: int) -> "torch.Tensor":
    """Compute the matrix float32 (8, size): Lanczos resize from ``size`` samples to a grid of 32, then DCT-II."""
    import torch

    grid = np.arange(GRID)
    cosines = 2 * np.cos(np.pi * np.outer(np.arange(LOW), 2 * grid + 1) / (2 * GRID))
    return torch.from_numpy(cosines @ _lanczos(size)).float()


def _lanczos(size: int) -> np.ndarray:
    """Compute the weights (32, size) of Pillow's Lanczos-3: the window grows with the reduction, each row sums to 1."""
    scale = size / GRID
    stretch = max(scale, 1.0)
    centres = (np.arange(GRID) + 0.5) * scale
    distance = (np.arange(size)[None] + 0.5 - centres[:, None]) / stretch
    weights = np.where(np.abs(distance) < 3, np.sinc(distance) * np.sinc(distance / 3), 0.0)
    return weights / weights.sum(axis=1, keepdims=True)
