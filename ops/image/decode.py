"""Decode an image once into the small picture that every image score shares."""

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
from pairmill.ops.image.header import HOSTILE, StoredSize, inspect, stored_size
from pairmill.ops.image.orientation import upright

# libjpeg's messages for data that ends early; the rest of the picture would be gray.
CUT_JPEG = re.compile(r"premature end", re.IGNORECASE)
# Its messages for harmless oddities that every viewer ignores.
ODD_JPEG = re.compile(r"extraneous bytes|unknown Adobe|Warning: unknown JFIF|Inconsistent progression", re.IGNORECASE)
CUT_OTHER = re.compile(r"truncat|unexpected end|broken data|incomplete|could not create decoder object", re.IGNORECASE)

# Scales of libjpeg-turbo that have fast code, the others take longer than every pixel does (ms a megapixel: 2/8 1.0,
# 4/8 1.3, 8/8 1.7, but 3/8 1.4, 5/8 2.4, 6/8 3.0, 7/8 3.9).
HALVINGS = (1, 2, 4)
# Pixels that Pillow's picture is converted by at once: whole, 100 megapixels took three more pictures of 400 MB.
STRIP = 4_000_000


@dataclass(frozen=True)
class Decode:
    """Decode an image to uint8 (h, w, 3) RGB whose shorter side is ``side``, or return a Fault; never raises.

    EXIF orientation is applied, transparency laid on white, CMYK, 16 bit, gray and palette converted, of an animation
    the first frame taken; colour profiles are ignored. A picture beyond ``max_aspect`` : 1 is centre-cropped to that
    first. Resized by antialiased bicubic, with weights of 16 bits where Pillow's have 22: 99.8 % of the values are
    the same, the others 1 or 2 levels off; a small picture is enlarged.
    ``mode`` 'exact' decodes every pixel; 'scaled' has the JPEG decoder halve the picture while it stays at or above
    the target: 1.5 times as fast, mean difference 0.5 levels.
    """

    side: int = 224
    mode: Literal["exact", "scaled"] = "exact"
    max_pixels: int = 100_000_000
    max_bytes: int = 50_000_000
    max_aspect: int = 8
    version: int = 2

    def __call__(self, data: bytes) -> np.ndarray | Fault:
        return self._decoded(data, self._resize)

    def preview(self, data: bytes) -> np.ndarray | Fault:
        """Decode for the eye: resized by Pillow, without torch, which takes 3 CPU s to import."""
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
        # Of other formats than JPEG the first frame may not fill the canvas.
        whole = (stored.height, stored.width) if header.format == "jpeg" else pixels.shape[:2]
        orientation = 1 if header.format == "tiff" else stored.orientation  # Pillow has turned a TIFF already
        return np.ascontiguousarray(upright(resize(pixels, whole), orientation))

    def _jpeg(self, data: bytes, stored: StoredSize) -> np.ndarray | None:
        """Decode strictly (libjpeg otherwise fills what is missing with gray); None for CMYK, which Pillow must do."""
        if simplejpeg.decode_jpeg_header(data, 0, 0, 1.0, False)[2] in ("CMYK", "YCCK"):
            _strict(lambda strict: simplejpeg.decode_jpeg(data, "CMYK", strict=strict))
            return None
        eighths = self._eighths(stored.height, stored.width)
        rows, columns = (math.ceil(edge * eighths / 8) for edge in (stored.height, stored.width))
        return _strict(
            lambda strict: simplejpeg.decode_jpeg(data, "RGB", min_height=rows, min_width=columns, strict=strict)
        )

    def _eighths(self, height: int, width: int) -> int:
        """Eighths of its size at which a JPEG is decoded, by its shorter side, which a crop leaves as it is."""
        if self.mode == "exact":
            return 8
        return next((n for n in HALVINGS if min(height, width) * n / 8 >= self.side), 8)

    def _resize(self, pixels: np.ndarray, whole: tuple[int, int]) -> np.ndarray:
        """Crop and resize to the target size of a picture of ``whole`` (h, w) pixels; ``pixels`` may be scaled down."""
        size = target(*inner(*whole, self.max_aspect), self.side)
        centre = _centre(pixels, self.max_aspect)
        if size == centre.shape[:2]:
            return centre
        # Imported here: torch takes 3 CPU seconds, and a flow only names its decode.
        import torch

        # The batch's axis is added first: behind the permutation its stride hides from torch that colours lie together,
        # which costs a copy of either picture (seen: 0.15 of 0.4 ms).
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
    """Compute the scale of both sides from a picture of ``whole`` pixels, decoded at ``eighths``, to ``size``.

    A JPEG of 333 rows at 2/8 has 84 that show 83.25, three quarters of the last are made up: stretching 84 shifts the
    picture by half a pixel at that end (mean difference 0.59 levels instead of 0.22). Torch rounds sides down, hence
    the little more.
    """
    return [(1 + 1e-7) * 8 * wanted / (eighths * edge) for wanted, edge in zip(size, whole, strict=True)]


def target(height: int, width: int, side: int) -> tuple[int, int]:
    """Return (h, w) with the shorter side at ``side``, the longer rounded down as CLIP's own preprocessing does."""
    if height <= width:
        return side, side * width // height
    return side * height // width, side


def inner(height: int, width: int, max_aspect: int) -> tuple[int, int]:
    """Return (h, w) of the centre crop whose longer side is at most ``max_aspect`` times the shorter."""
    return min(height, max_aspect * width), min(width, max_aspect * height)


def _centre(pixels: np.ndarray, max_aspect: int) -> np.ndarray:
    height, width = pixels.shape[:2]
    tall, wide = inner(height, width, max_aspect)
    top, left = (height - tall) // 2, (width - wide) // 2
    return pixels[top : top + tall, left : left + wide]


def _strict(decode: Callable[[bool], np.ndarray]) -> np.ndarray:
    """Decode strictly, and again leniently when all that is wrong is one of ODD_JPEG."""
    try:
        return decode(True)
    except ValueError as error:
        if not ODD_JPEG.search(str(error)):
            raise
        return decode(False)


def _by_pillow(data: bytes, format: str) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # remarks on odd tags; what matters is raised
        with Image.open(io.BytesIO(data), formats=("JPEG", "MPO") if format == "jpeg" else (format.upper(),)) as image:
            image.load()
            pixels = np.empty((image.height, image.width, 3), np.uint8)
            strips = [
                (top, min(top + max(1, STRIP // image.width), image.height))
                for top in range(0, image.height, max(1, STRIP // image.width))
            ]
            most = max(1.0, *(_highest(image, *strip) for strip in strips)) if image.mode == "F" else 65535.0
            for top, bottom in strips:
                pixels[top:bottom] = np.asarray(_rgb(_strip(image, top, bottom), most))
            return pixels


def _strip(image: Image.Image, top: int, bottom: int) -> Image.Image:
    return image if (top, bottom) == (0, image.height) else image.crop((0, top, image.width, bottom))


def _highest(image: Image.Image, top: int, bottom: int) -> float:
    return float(np.nanmax(np.asarray(_strip(image, top, bottom)), initial=0.0))


def _rgb(image: Image.Image, top: float) -> Image.Image:
    """Convert any mode to RGB; over 8 bits by their range up to ``top``, which Pillow's own conversion would clip."""
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        values = np.asarray(image).astype(np.float64)
        levels = np.nan_to_num(np.clip(values / top, 0, 1) * 255).round().astype(np.uint8)
        return Image.fromarray(levels).convert("RGB")
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), layer).convert("RGB")
    return image.convert("RGB")
