"""Count the tokens that a picture of a given size becomes, by its processor's own count or else by a trial."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

# Sizes that a processor with a fixed number of tokens gives one count: a square, a wide, a tall, a small picture.
PROBES = ((448, 448), (448, 1344), (1344, 448), (64, 96))


class Counted(Protocol):
    """A loaded model whose processor makes inputs of pictures."""

    def own_processor(self) -> Any:
        """Return this thread's processor."""
        ...

    def _inputs(self, pictures: list[np.ndarray | None], prompts: list[str], /) -> dict[str, Any]: ...


class PictureTokens:
    """The number of tokens of a picture by its size (height, width), for the processor of ``loaded``.

    A processor without a count of its own (SmolVLM's) is asked for the inputs of one picture of each new size, which
    takes it some milliseconds, or for four pictures in all if these show that the size does not matter.
    """

    def __init__(self, loaded: Counted) -> None:
        self._loaded = loaded
        self._known: dict[tuple[int, int], int] = {}
        self._of_all: int | None = None
        self._is_tried = False

    def of(self, sizes: Sequence[tuple[int, int]]) -> list[int]:
        """Count the tokens of pictures of these sizes; 0 each for a processor that makes no inputs of them."""
        if not sizes:
            return []
        processor = self._loaded.own_processor()
        count = getattr(processor, "_get_num_multimodal_tokens", None)
        if count is not None:
            try:
                return list(count(image_sizes=list(sizes))["num_image_tokens"])
            except (AttributeError, KeyError, TypeError, NotImplementedError):
                pass  # some processors inherit a count that they do not support
        if not self._is_tried:
            tried = {self._by_trial(size) for size in PROBES}
            self._of_all, self._is_tried = (tried.pop() if len(tried) == 1 else None), True
        return [self._by_trial(size) if self._of_all is None else self._of_all for size in sizes]

    def _by_trial(self, size: tuple[int, int]) -> int:
        """Count the tokens that one picture of this size adds to a prompt."""
        if size not in self._known:
            try:
                shown, bare = (self._loaded._inputs([picture], ["a"]) for picture in (noise(*size), None))
                self._known[size] = shown["input_ids"].shape[1] - bare["input_ids"].shape[1]
            except Exception:  # a processor that needs pictures, or refuses this size: the row itself is reported later
                self._known[size] = 0
        return self._known[size]


def noise(height: int, width: int) -> np.ndarray:
    """Make a picture (height, width, 3) uint8 of noise, the same each time.

    Black pictures end a trained model's answer after a few words, and zeros run 13 % faster through a GPU.
    """
    return np.random.default_rng(height * 100_003 + width).integers(0, 256, (height, width, 3), np.uint8)
