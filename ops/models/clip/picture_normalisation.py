"""Scale and normalise images on the device, so that uint8 pixels are copied there: a quarter of the bytes of fp32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

# Arguments that make a transformers processor return uint8 pixels.
LEFT_OUT = {"do_rescale": False, "do_normalize": False}


@dataclass(frozen=True)
class Normalisation:
    """Convert pixels (n, 3, h, w) uint8 to fp32 ``(pixels * scale - mean) / std`` per channel, on their own device."""

    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return the normalised pixels (n, 3, h, w) fp32."""
        mean, std = (pixels.new_tensor(each, dtype=torch.float32)[:, None, None] for each in (self.mean, self.std))
        return (pixels.float() * self.scale - mean) / std


def normalisation(processor: Any) -> Normalisation | None:
    """Return the last step of an image processor; None if it cannot be skipped or is not a normalisation.

    Processors differ in their other steps, so the answer comes from a trial: for two images of unlike shapes, skipping
    the step and applying `Normalisation` must give the processor's own pixels (to 1e-4).
    """
    pictures: Any = getattr(processor, "image_processor", None)
    if not (getattr(pictures, "do_rescale", False) and getattr(pictures, "do_normalize", False)):
        return None
    rng = np.random.default_rng(0)
    shown = [rng.integers(0, 256, (side, 90, 3), np.uint8) for side in (60, 130)]
    try:
        mean, std = pictures.image_mean, pictures.image_std
        last = Normalisation(float(pictures.rescale_factor), tuple(map(float, mean)), tuple(map(float, std)))
        whole = pictures(images=shown, return_tensors="pt")["pixel_values"]
        bare = pictures(images=shown, return_tensors="pt", **LEFT_OUT)["pixel_values"]
    except (AttributeError, KeyError, TypeError, ValueError):  # unlike shapes that do not stack into one tensor
        return None
    if bare.dtype != torch.uint8 or bare.ndim != 4 or bare.shape[:2] != (2, 3) or whole.shape != bare.shape:
        return None
    return last if torch.allclose(last(bare), whole, atol=1e-4) else None
