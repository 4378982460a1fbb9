"""Set how an image processor tiles and resizes pictures, and move its last step, normalisation, to the device."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isqrt
from typing import Any

import numpy as np
import torch

from pairmill.ops.models.model_error import ModelError

# Arguments that make a transformers processor return pixels from 0 to 255.
LEFT_OUT = {"do_rescale": False, "do_normalize": False}
# Shapes of a trial: pictures that a processor cuts into unlike numbers of tiles, whose padding is no picture.
SHAPES = ((60, 90), (130, 90), (90, 300))
# New values of an image processor's attributes, by name.
Changes = dict[str, Any]


def with_picture_settings(processor: Any, settings: Mapping[str, int], spec: str) -> Any:
    """Return a copy of a transformers processor with the picture settings ``settings``.

    ``tiles`` is the maximum number of tiles of a picture, which many processors show beside the whole picture; 1 shows
    only the whole picture. A processor without tiles accepts 1. ``longest_edge`` is in pixels, ``min_pixels`` and
    ``max_pixels`` are areas. Raises ModelError if the processor has no setting for one of them.
    """
    made = copy.deepcopy(processor)
    pictures: Any = getattr(made, "image_processor", None)
    for name, value in settings.items():
        if (changes := _CHANGES[name](pictures, value)) is None:
            raise ModelError(
                f"model '{spec}': its {type(pictures).__name__} has no setting for `{name}: {value}`; leave it out of "
                "the captioner's `processor` (--set 'captioners.NAME.processor={}')"
            )
        for key, to in changes.items():
            setattr(pictures, key, to)
            if key in (given := getattr(made, "images_kwargs", {})):  # a processor's own default, which wins
                made.images_kwargs = {**given, key: to}
    return made


def _tiles(pictures: Any, n: int) -> Changes | None:
    """Return the changes that cut a picture into at most ``n`` tiles; none for 1 tile of a processor without tiles."""
    cuts = next((cut for name, cut in _CUTS.items() if hasattr(pictures, name)), None)
    return cuts(pictures, n) if cuts else {} if n == 1 else None


def _split(pictures: Any, n: int) -> Changes:
    """Idefics and SmolVLM: a grid of squares, by the longest edge; Idefics2 always cuts in four."""
    edge = getattr(pictures, "max_image_size", None)
    if n == 1 or edge is None:
        return {"do_image_splitting": n >= 4}
    return {"do_image_splitting": True} | _size(pictures, longest_edge=isqrt(n) * edge["longest_edge"])


def _grids(pictures: Any, n: int) -> Changes | None:
    """LLaVA-NeXT and OneVision: keep the grids, of those that the weights were trained on, of at most ``n`` tiles.

    Each shows the whole picture beside its tiles. `LoadedVlm` gives the model the same grids.
    """
    grids = pictures.image_grid_pinpoints
    tile = min(edge for grid in grids for edge in grid)
    kept = [grid for grid in grids if grid[0] * grid[1] <= n * tile * tile]
    return {"image_grid_pinpoints": kept} if kept else None


_CUTS: dict[str, Callable[[Any, int], Changes | None]] = {
    "do_image_splitting": _split,
    "image_grid_pinpoints": _grids,
    "crop_to_patches": lambda _, n: {"crop_to_patches": n > 1, "min_patches": 1, "max_patches": n},
    "do_pan_and_scan": lambda _, n: {"do_pan_and_scan": n > 1, "pan_and_scan_max_num_crops": n},
    "max_image_tiles": lambda _, n: {"max_image_tiles": n},
    "split_image": lambda _, n: {"split_image": n > 1},
}


def _is_by_area(pictures: Any) -> bool:
    """Return whether the processor's ``size`` holds areas: Qwen's, whose two edges are the least and most pixels."""
    return hasattr(pictures, "merge_size") and {"shortest_edge", "longest_edge"} <= set(dict(pictures.size or {}))


def _size(pictures: Any, **edges: int) -> Changes:
    """Return the change of some edges of the processor's ``size``."""
    return {"size": type(pictures.size)(**{**dict(pictures.size), **edges})}


def _longest_edge(pictures: Any, value: int) -> Changes | None:
    """Return the change that shows pictures with a longest edge of ``value`` pixels; None if it cannot be set."""
    if _is_by_area(pictures) or "longest_edge" not in dict(getattr(pictures, "size", None) or {}):
        return None
    return _size(pictures, longest_edge=value)


def _area(edge: str) -> Callable[[Any, int], Changes | None]:
    """Return the function that sets a bound of a processor's area, which its ``size`` calls an edge."""
    return lambda pictures, value: _size(pictures, **{edge: value}) if _is_by_area(pictures) else None


_CHANGES: dict[str, Callable[[Any, int], Changes | None]] = {
    "tiles": _tiles,
    "longest_edge": _longest_edge,
    "min_pixels": _area("shortest_edge"),
    "max_pixels": _area("longest_edge"),
}


@dataclass(frozen=True)
class Normalisation:
    """Convert uint8 pixels to fp32 ``(pixels * scale - mean) / std`` per channel, on their own device.

    Copying uint8 to the device takes a quarter of the bytes of fp32.

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
    """Convert pixels that are whole numbers from 0 to 255 to uint8; return any other pixels unchanged."""
    small = pixels.to(torch.uint8)
    return small if torch.equal(small.to(pixels.dtype), pixels) else pixels


def normalisation(processor: Any) -> Normalisation | None:
    """Return the normalisation that an image processor ends with; None if it has none or the step cannot be skipped.

    Processors differ in their other steps, so a trial decides: for images of different shapes, skipping the step and
    applying `Normalisation` must give the processor's own pixels (to 1e-4).
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
