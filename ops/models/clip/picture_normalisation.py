"""Scale and normalise images on the device, so that uint8 pixels are copied there: a quarter of the bytes of fp32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

# Arguments that make a transformers processor return pixels from 0 to 255.
LEFT_OUT = {"do_rescale": False, "do_normalize": False}
# Shapes of a trial: pictures that a processor cuts into unlike numbers of tiles, whose padding is no picture.
SHAPES = ((60, 90), (130, 90), (90, 300))


@dataclass(frozen=True)
class Normalisation:
    """Convert uint8 pixels to fp32 ``(pixels * scale - mean) / std`` per channel, on their own device.

    Pixels are (n, 3, h, w), (n, tiles, 3, h, w), or Qwen's patches (n, 3 * values), channel after channel.
    """

    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return the normalised pixels fp32, in the same shape."""
        by_channel = pixels.reshape(len(pixels), 3, -1, 1) if pixels.ndim == 2 else pixels
        mean, std = (pixels.new_tensor(each, dtype=torch.float32)[:, None, None] for each in (self.mean, self.std))
        return ((by_channel.float() * self.scale - mean) / std).reshape(pixels.shape)


def as_bytes(pixels: torch.Tensor) -> torch.Tensor:
    """Convert whole numbers from 0 to 255 to uint8; return any other pixels unchanged."""
    small = pixels.to(torch.uint8)
    return small if torch.equal(small.to(pixels.dtype), pixels) else pixels


def normalisation(processor: Any) -> Normalisation | None:
    """Return the last step of an image processor; None if it cannot be skipped or is not a normalisation.

    Processors differ in their other steps, so the answer comes from a trial: for images of unlike shapes, skipping the
    step and applying `Normalisation` must give the processor's own pixels (to 1e-4).
    """
    pictures: Any = getattr(processor, "image_processor", None)
    if not (getattr(pictures, "do_rescale", False) and getattr(pictures, "do_normalize", False)):
        return None
    rng = np.random.default_rng(0)
    shown = [[rng.integers(0, 256, (*shape, 3), np.uint8)] for shape in SHAPES]
    try:
        mean, std = pictures.image_mean, pictures.image_std
        last = Normalisation(float(pictures.rescale_factor), tuple(map(float, mean)), tuple(map(float, std)))
        whole = pictures(images=shown, return_tensors="pt")["pixel_values"]
        bare = as_bytes(pictures(images=shown, return_tensors="pt", **LEFT_OUT)["pixel_values"])
        found = last(bare)
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError):  # shapes that do not stack into one tensor
        return None
    if bare.dtype != torch.uint8 or whole.shape != found.shape:
        return None
    return last if torch.allclose(found, whole, atol=1e-4) else None
