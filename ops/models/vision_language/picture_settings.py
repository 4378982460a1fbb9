"""Set into how many tiles a processor cuts a picture and how large it shows it, by one name for all processors."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from math import isqrt
from typing import Any

from pairmill.ops.models.model_error import ModelError

# New values of an image processor's attributes, by name.
Changes = dict[str, Any]


def with_picture_settings(processor: Any, settings: Mapping[str, int], spec: str) -> Any:
    """Return a copy of a transformers processor with these picture settings.

    ``tiles`` is the most pieces that a picture is cut into, which many processors show beside the whole picture; 1
    shows it whole alone. A processor that never cuts accepts 1. ``longest_edge`` is in pixels, ``min_pixels`` and
    ``max_pixels`` are areas.

    Raises:
        ModelError: The processor has no setting for one of them.
    """
    made = copy.deepcopy(processor)
    pictures: Any = getattr(made, "image_processor", None)
    for name, value in settings.items():
        changes = _CHANGES[name](pictures, value)
        if changes is None:
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
    cuts = next((name for name in _CUTS if hasattr(pictures, name)), "")
    if not cuts:
        return {} if n == 1 else None
    return _CUTS[cuts](pictures, n)


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
