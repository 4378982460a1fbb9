"""Decode an image once into the small RGB array that all image scorers share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from PIL import Image

from pairmill.ops.fault import Fault
from pairmill.ops.image.header import inspect
from pairmill.ops.image.pixels import stored_pixels, upright


@dataclass(frozen=True)
class Decode:
    """Decode an image to uint8 (h, w, 3) RGB whose shorter side is ``side``, or return a Fault; never raises.

    `ops.image.pixels` defines colour, transparency and orientation. An image with an aspect ratio above ``max_aspect``
    : 1 is first centre-cropped to that ratio. The resize is antialiased bicubic with 16-bit weights, where Pillow's
    have 22 bits: 99.8 % of the values are equal, the others differ by 1 or 2 levels. A small image is enlarged.

    ``mode`` 'exact' decodes every pixel. 'scaled' lets the JPEG decoder halve the image while its shorter side stays at
    or above ``side``: 1.5 times as fast, mean difference 0.5 levels.
    """

    side: int = 224
    mode: Literal["exact", "scaled"] = "exact"
    max_pixels: int = 100_000_000
    max_bytes: int = 50_000_000
    max_aspect: int = 8
    version: int = 2

    def __call__(self, data: bytes) -> np.ndarray | Fault:
        """Decode one encoded image."""
        return self._decoded(data, self._resize)

    def shown_size(self, data: bytes) -> tuple[int, int]:
        """Return the (height, width) of the decoded image, by its header alone; (side, side) for a faulty header."""
        if isinstance(header := inspect(data, self.max_pixels, self.max_bytes), Fault):
            return self.side, self.side
        return target(*inner(header.height, header.width, self.max_aspect), self.side)

    def preview(self, data: bytes) -> np.ndarray | Fault:
        """Decode one image for display, like `__call__`, but resize by Pillow: importing torch takes 3 CPU s."""
        return self._decoded(data, self._resize_by_pillow)

    def _decoded(self, data: bytes, resize: Callable[[np.ndarray, tuple[int, int]], np.ndarray]) -> np.ndarray | Fault:
        least_side = self.side if self.mode == "scaled" else 0
        found = stored_pixels(data, self.max_pixels, self.max_bytes, least_side)
        if isinstance(found, Fault):
            return found
        return np.ascontiguousarray(upright(resize(found.pixels, found.whole), found.orientation))

    def _resize(self, pixels: np.ndarray, whole: tuple[int, int]) -> np.ndarray:
        """Crop and resize an image of ``whole`` (h, w) pixels; ``pixels`` may hold it decoded at a smaller scale."""
        size = target(*inner(*whole, self.max_aspect), self.side)
        centre = _centre(pixels, self.max_aspect)
        if size == centre.shape[:2]:
            return centre
        # Importing torch takes 3 CPU seconds, which a flow that only declares a Decode must not pay.
        import torch

        # Add the batch axis before the permutation: added after it, the axis's stride hides from torch that the
        # channels are contiguous, which costs a copy of both images (0.15 of 0.4 ms).
        planes = torch.from_numpy(np.ascontiguousarray(centre))[None].permute(0, 3, 1, 2)
        scales = None
        if pixels.shape[:2] != whole:
            scales = _scales(8 * pixels.shape[0] // whole[0], inner(*whole, self.max_aspect), size)
        small = torch.nn.functional.interpolate(planes, None if scales else size, scales, "bicubic", antialias=True)
        return small[0].permute(1, 2, 0).numpy()[: size[0], : size[1]]

    def _resize_by_pillow(self, pixels: np.ndarray, whole: tuple[int, int]) -> np.ndarray:
        height, width = target(*inner(*whole, self.max_aspect), self.side)
        centre = Image.fromarray(np.ascontiguousarray(_centre(pixels, self.max_aspect)))
        return np.asarray(centre.resize((width, height), Image.Resampling.BICUBIC))


def _scales(eighths: int, whole: tuple[int, int], size: tuple[int, int]) -> list[float]:
    """Compute the scale of both sides from an image of ``whole`` pixels, decoded at ``eighths``, to ``size``.

    A JPEG of 333 rows decoded at 2/8 has 84 rows that show 83.25: three quarters of the last row are padding.
    Stretching all 84 rows would shift the image by half a pixel at that end (mean difference 0.59 levels instead of
    0.22). The factor 1 + 1e-7 compensates for torch, which rounds sides down.
    """
    return [(1 + 1e-7) * 8 * wanted / (eighths * edge) for wanted, edge in zip(size, whole, strict=True)]


def target(height: int, width: int, side: int) -> tuple[int, int]:
    """Return (h, w) scaled so that the shorter side is ``side``; the longer side is rounded down, as CLIP does."""
    return (side, side * width // height) if height <= width else (side * height // width, side)


def inner(height: int, width: int, max_aspect: int) -> tuple[int, int]:
    """Return (h, w) of the centre crop whose longer side is at most ``max_aspect`` times the shorter."""
    return min(height, max_aspect * width), min(width, max_aspect * height)


def _centre(pixels: np.ndarray, max_aspect: int) -> np.ndarray:
    """Return a view of the centre crop of ``pixels`` (h, w, ...) within ``max_aspect``."""
    height, width = pixels.shape[:2]
    tall, wide = inner(height, width, max_aspect)
    top, left = (height - tall) // 2, (width - wide) // 2
    return pixels[top : top + tall, left : left + wide]
