"""Brightness of pixels by ITU-R BT.601, the weights of JPEG and of Pillow's mode 'L'."""

from __future__ import annotations

import numpy as np
from PIL import Image

from ops.batch import Batch


def luma(pixels: np.ndarray) -> np.ndarray:
    """uint8 (h, w, 3) to uint8 (h, w), rounded: Pillow's mode 'L', fixed-point and so the same anywhere."""
    return np.asarray(Image.fromarray(np.ascontiguousarray(pixels)).convert("L"))


def with_luma(batch: Batch) -> Batch:
    """Read ``pixels``; add ``luma``, a list of uint8 (h, w), unless it is there: the scores then share it."""
    return batch if "luma" in batch else batch | {"luma": [luma(pixels) for pixels in batch["pixels"]]}
