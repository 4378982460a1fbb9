"""Score images by sharpness, brightness, colourfulness and entropy; compute the luma that scorers share."""

from dataclasses import dataclass

import numpy as np
from PIL import Image

from pairmill.ops.batch import Batch


@dataclass(frozen=True)
class ImageQuality:
    """Read ``pixels`` (list of uint8 (h, w, 3)) and ``luma`` if present; add four float64 columns of 4 decimals.

    ``sharpness``: variance of the 4-neighbour Laplacian of the luma, >= 0. It grows with contrast, noise and smaller
    originals: compare it within one source. ``brightness``: mean luma, [0, 1]. ``colourfulness``: Hasler and Süsstrunk
    2003, 0 for gray, about 100 for very colourful. ``image_entropy``: entropy of the luma histogram in bits, [0, 8].
    """

    version: int = 1

    def __call__(self, batch: Batch) -> Batch:
        """Return ``batch`` with the four columns added."""
        pairs = zip(batch["pixels"], with_luma(batch)["luma"], strict=True)
        rows = np.array([_scores(*pair) for pair in pairs], dtype=np.float64).reshape(-1, 4).round(4)
        names = ("sharpness", "brightness", "colourfulness", "image_entropy")
        return batch | {name: rows[:, column] for column, name in enumerate(names)}


def _scores(pixels: np.ndarray, gray: np.ndarray) -> tuple[float, float, float, float]:
    """Compute (sharpness, brightness, colourfulness, entropy) of one image and its luma."""
    shares = _shares(gray)
    brightness = float(shares @ np.arange(256)) / 255
    return sharpness(gray), brightness, colourfulness(pixels), _entropy(shares)


def luma_entropy(gray: np.ndarray) -> float:
    """Compute the Shannon entropy of the histogram of a luma uint8 (h, w) in bits, 0 to 8."""
    return _entropy(_shares(gray))


def _shares(gray: np.ndarray) -> np.ndarray:
    """Compute the share of each of 256 levels."""
    return np.array(Image.fromarray(gray).histogram()) / gray.size  # three times as fast as numpy's bincount


def _entropy(shares: np.ndarray) -> float:
    present = shares[shares > 0]
    # 0.0 + turns the -0.0 of a flat image into 0.0.
    return 0.0 + float(-(present * np.log2(present)).sum())


def sharpness(gray: np.ndarray) -> float:
    """Compute the variance of the 4-neighbour Laplacian inside uint8 (h, w); 0 for a side below 3 pixels."""
    if min(gray.shape) < 3:
        return 0.0
    wide = gray.astype(np.int16)
    edges = wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:] - 4 * wide[1:-1, 1:-1]
    return _variance(edges)[0]


def colourfulness(pixels: np.ndarray) -> float:
    """Compute Hasler and Süsstrunk's metric M3 (2003) from the spread and mean of red-green and yellow-blue, >= 0."""
    red, green, blue = (pixels[..., channel].astype(np.int16) for channel in range(3))
    red_green = red - green
    # Twice yellow-blue, to compute in integers.
    yellow_blue = red + green - 2 * blue
    (first, first_mean), (second, second_mean) = _variance(red_green), _variance(yellow_blue)
    spread = np.sqrt(first + second / 4)
    offset = np.hypot(first_mean, second_mean / 2)
    return float(spread + 0.3 * offset)


def _variance(values: np.ndarray) -> tuple[float, float]:
    """Compute (variance, mean) of small integers exactly: their sums stay below 2**53, the limit of exact floats."""
    flat = values.ravel().astype(np.float64)
    # einsum rather than BLAS: the threads of BLAS spin, which costs 30 times the work on a busy machine.
    total, squares = int(flat.sum()), int(np.einsum("i,i->", flat, flat))
    return (squares * flat.size - total * total) / (flat.size * flat.size), total / flat.size


def luma(pixels: np.ndarray) -> np.ndarray:
    """Convert uint8 (h, w, 3) to luma uint8 (h, w), ITU-R BT.601: Pillow's mode 'L', equal on any machine."""
    return np.asarray(Image.fromarray(np.ascontiguousarray(pixels)).convert("L"))


def with_luma(batch: Batch) -> Batch:
    """Read ``pixels``; add ``luma``, a list of uint8 (h, w), unless present, so that several scorers share it."""
    return batch if "luma" in batch else batch | {"luma": [luma(pixels) for pixels in batch["pixels"]]}
