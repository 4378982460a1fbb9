"""Compute luma by ITU-R BT.601, with the weights of JPEG and of Pillow's mode 'L'."""

from __future__ import annotations

import numpy as np
from PIL import Image

from pairmill.ops.batch import Batch


def luma(pixels: np.ndarray) -> np.ndarray:
    """Convert uint8 (h, w, 3) to luma uint8 (h, w) like Pillow's mode 'L': in fixed point, so equal on any machine."""
    return np.asarray(Image.fromarray(np.ascontiguousarray(pixels)).convert("L"))


def with_luma(batch: Batch) -> Batch:
    """Read ``pixels``; add ``luma``, a list of uint8 (h, w), unless present, so that several scorers share it."""
    return batch if "luma" in batch else batch | {"luma": [luma(pixels) for pixels in batch["pixels"]]}
