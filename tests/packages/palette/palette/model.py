"""Describe pictures by the name of their mean colour, from the colours that a spec names: 'palette:red,blue'."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from PIL import ImageColor

from pairmill.ops.models.generation import Generation
from pairmill.ops.models.model_error import ModelError


@dataclass(frozen=True)
class Palette:
    """Answer every prompt with the nearest colour of ``spec``, by Euclidean distance in RGB."""

    spec: str
    batch_size: int = 8
    version: int = 1

    max_in_flight: ClassVar[int] = 0
    answer_settings: ClassVar[tuple[str, ...]] = ()
    shows_images: ClassVar[bool] = True

    def load(self) -> None:
        """Validate the colours. Raises ModelError for an unknown one."""
        self._colours()

    def fitted(self, prompt: str, side: int, max_tokens: int) -> Palette:
        """Return this model: no batch size is faster than another."""
        return self

    def batches(self, prompts: list[str], sizes: list[tuple[int, int] | None] | None = None) -> list[list[int]]:
        """Group row numbers into batches in their order."""
        rows = list(range(len(prompts)))
        return [rows[first : first + self.batch_size] for first in range(0, len(rows), self.batch_size)]

    def prepare(self, pictures: list[np.ndarray], prompts: list[str]) -> np.ndarray:
        """Return the mean colour of each picture, float (n, 3)."""
        return np.array([picture.reshape(-1, 3).mean(axis=0) for picture in pictures])

    def infer(self, prepared: np.ndarray, max_tokens: int) -> list[Generation]:
        """Name the nearest colours."""
        colours = self._colours()
        of = np.array(list(colours.values()))
        nearest = np.linalg.norm(prepared[:, None] - of[None], axis=2).argmin(axis=1)
        return [Generation(f"A {list(colours)[row]} picture.", 3, "stop", 0.0) for row in nearest]

    def fetch(self, running: list[Generation]) -> list[Generation]:
        """Return the answers."""
        return running

    def _colours(self) -> dict[str, tuple[int, ...]]:
        names = self.spec.partition(":")[2].split(",")
        try:
            return {name: ImageColor.getrgb(name) for name in names}
        except ValueError as error:
            raise ModelError(f"model '{self.spec}': {error}; name colours of CSS") from error


def captioner(spec: str, precision: str, batch_size: int, encoding: str) -> Palette:
    """Return the model of ``spec``."""
    return Palette(spec, batch_size)


def digest(spec: str) -> str:
    """Hash the names of the colours, on which alone the answers depend. Raises ModelError for an unknown one."""
    Palette(spec).load()
    return hashlib.sha256(spec.encode()).hexdigest()[:32]
