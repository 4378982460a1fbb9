"""Decode an image once into the small RGB array that all image scorers share."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import simplejpeg
from PIL import Image

from pairmill.ops.fault import Fault
from pairmill.ops.image.header import HOSTILE, TURNED, StoredSize, inspect, stored_size

# libjpeg's messages for data that ends early; a lenient decoder would fill the rest with gray.
CUT_JPEG = re.compile(r"premature end", re.IGNORECASE)
# libjpeg's messages for harmless oddities that every viewer ignores.
ODD_JPEG = re.compile(r"extraneous bytes|unknown Adobe|Warning: unknown JFIF|Inconsistent progression", re.IGNORECASE)
CUT_OTHER = re.compile(r"truncat|unexpected end|broken data|incomplete|could not create decoder object", re.IGNORECASE)

# Scales, in eighths, for which libjpeg-turbo has fast code. The other scales are slower, most of them slower than full
# size (ms a megapixel: 2/8 1.0, 4/8 1.3, 8/8 1.7, but 3/8 1.4, 5/8 2.4, 6/8 3.0, 7/8 3.9).
HALVINGS = (1, 2, 4)
# Pixels of a Pillow image that are converted at once. A strip takes up to five further images of 4 bytes a pixel. With
# 4 million the peak was 40 MB higher, and conversion a quarter slower.
STRIP = 1_000_000


@dataclass(frozen=True)
class Decode:
    """Decode an image to uint8 (h, w, 3) RGB whose shorter side is ``side``, or return a Fault; never raises.

    EXIF orientation is applied. Transparency is composited on white. CMYK, 16-bit, gray and palette images are
    converted to RGB. Only the first frame of an animation is decoded. Colour profiles are ignored. An image with an
    aspect ratio above ``max_aspect`` : 1 is first centre-cropped to that ratio. The resize is antialiased bicubic with
    16-bit weights, where Pillow's have 22 bits: 99.8 % of the values are equal, the others differ by 1 or 2 levels. A
    small image is enlarged.

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
        """Return the (height, width) that an encoded image will have, by its header; a square for a faulty header."""
        header = inspect(data, self.max_pixels, self.max_bytes)
        if isinstance(header, Fault):
            return self.side, self.side
        return target(*inner(header.height, header.width, self.max_aspect), self.side)

    def preview(self, data: bytes) -> np.ndarray | Fault:
        """Decode one image for display: resized by Pillow, because torch takes 3 CPU s to import."""
        return self._decoded(data, self._resize_by_pillow)

    def _decoded(self, data: bytes, resize: Callable[[np.ndarray, tuple[int, int]], np.ndarray]) -> np.ndarray | Fault:
        header = inspect(data, self.max_pixels, self.max_bytes)
        if isinstance(header, Fault):
            return header
        try:
            stored = stored_size(data, header.format)
            pixels = self._jpeg(data, stored) if header.format == "jpeg" else None
            if pixels is None:
                pixels = _by_pillow(data, header.format)
        except HOSTILE as error:
            cut = (CUT_JPEG if header.format == "jpeg" else CUT_OTHER).search(str(error))
            return Fault("", "truncated" if cut else "undecodable", f"{header.format}: {error or type(error).__name__}")
        # In other formats than JPEG the first frame may not fill the canvas.
        whole = (stored.height, stored.width) if header.format == "jpeg" else pixels.shape[:2]
        orientation = 1 if header.format == "tiff" else stored.orientation  # Pillow has already rotated a TIFF
        return np.ascontiguousarray(upright(resize(pixels, whole), orientation))

    def _jpeg(self, data: bytes, stored: StoredSize) -> np.ndarray | None:
        """Decode a JPEG; return None for CMYK, left to Pillow. A lenient libjpeg would fill missing data with gray."""
        if simplejpeg.decode_jpeg_header(data, 0, 0, 1.0, False)[2] in ("CMYK", "YCCK"):
            _strict(lambda strict: simplejpeg.decode_jpeg(data, "CMYK", strict=strict))
            return None
        # The scale depends on the shorter side only, which a centre crop does not change.
        shorter = min(stored.height, stored.width)
        eighths = next((n for n in HALVINGS if self.mode == "scaled" and shorter * n / 8 >= self.side), 8)
        rows, columns = (math.ceil(edge * eighths / 8) for edge in (stored.height, stored.width))
        return _strict(
            lambda strict: simplejpeg.decode_jpeg(data, "RGB", min_height=rows, min_width=columns, strict=strict)
        )

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
    """Return (h, w) with the shorter side at ``side``; round the longer side down as CLIP's own preprocessing does."""
    if height <= width:
        return side, side * width // height
    return side * height // width, side


def inner(height: int, width: int, max_aspect: int) -> tuple[int, int]:
    """Return (h, w) of the centre crop whose longer side is at most ``max_aspect`` times the shorter."""
    return min(height, max_aspect * width), min(width, max_aspect * height)


def _centre(pixels: np.ndarray, max_aspect: int) -> np.ndarray:
    """Return a view of the centre crop of ``pixels`` (h, w, ...) within ``max_aspect``."""
    height, width = pixels.shape[:2]
    tall, wide = inner(height, width, max_aspect)
    top, left = (height - tall) // 2, (width - wide) // 2
    return pixels[top : top + tall, left : left + wide]


def _strict(decode: Callable[[bool], np.ndarray]) -> np.ndarray:
    """Decode strictly, and retry leniently if the only errors are harmless (ODD_JPEG)."""
    try:
        return decode(True)
    except ValueError as error:
        if not ODD_JPEG.search(str(error)):
            raise
        return decode(False)


def _by_pillow(data: bytes, format: str) -> np.ndarray:
    """Decode the first frame to uint8 (h, w, 3) with Pillow; convert STRIP pixels at a time to bound the memory."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings about odd tags; errors are raised
        with Image.open(io.BytesIO(data), formats=("JPEG", "MPO") if format == "jpeg" else (format.upper(),)) as image:
            image.load()
            pixels = np.empty((image.height, image.width, 3), np.uint8)
            rows = max(1, STRIP // image.width)
            strips = [(top, min(top + rows, image.height)) for top in range(0, image.height, rows)]
            most = 65535.0
            if image.mode == "F":  # the largest value, at least 1; NaN values are ignored
                most = max(1.0, *(float(np.nanmax(np.asarray(_strip(image, *each)), initial=0.0)) for each in strips))
            for top, bottom in strips:
                pixels[top:bottom] = np.asarray(_rgb(_strip(image, top, bottom), most))
            return pixels


def _strip(image: Image.Image, top: int, bottom: int) -> Image.Image:
    """Return rows ``top`` to ``bottom`` of an image; the image itself if these are all rows."""
    return image if (top, bottom) == (0, image.height) else image.crop((0, top, image.width, bottom))


def _rgb(image: Image.Image, top: float) -> Image.Image:
    """Convert an image of any mode to RGB; scale, not clip, values of over 8 bits from [0, ``top``] to [0, 255]."""
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        values = np.asarray(image).astype(np.float64)
        levels = np.nan_to_num(np.clip(values / top, 0, 1) * 255).round().astype(np.uint8)
        return Image.fromarray(levels).convert("RGB")
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), layer).convert("RGB")
    return image.convert("RGB")


def upright(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """Rotate and flip stored pixels (h, w, ...) for display by their EXIF orientation; return a view."""
    if orientation in TURNED:
        pixels = pixels.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return pixels
