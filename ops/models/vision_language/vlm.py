"""Answer prompts about images with a vision-language model of transformers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from pairmill.ops.models.device.batch_size import noise
from pairmill.ops.models.generate.local_model import LocalModel

if TYPE_CHECKING:
    from pairmill.ops.models.generate.loaded_model import Prepared
    from pairmill.ops.models.vision_language.vlm_loaded import LoadedVlm


@dataclass(frozen=True)
class VisionLanguageModel(LocalModel):
    """Answer prompts about images, greedily, by a vision-language model of transformers.

    ``processor`` has (name, value) pairs of picture settings (`with_picture_settings`), which change answers.
    """

    processor: tuple[tuple[str, int], ...] = ()

    answer_settings: ClassVar[tuple[str, ...]] = ("precision", "processor")
    shows_images: ClassVar[bool] = True

    def batches(self, prompts: list[str], sizes: list[tuple[int, int] | None] | None = None) -> list[list[int]]:
        """Group row numbers into batches: by cost on a GPU, by similar length on a CPU.

        ``sizes`` are the images' (height, width), None for a row without an image. Such a row never shares a batch with
        a row that has an image. Without ``sizes``, every row has an image, all of one size.
        """
        return self._loaded().batches(prompts, sizes, self.batch_size, self.room) if prompts else []

    def prepare(self, pictures: list[np.ndarray | None], prompts: list[str]) -> Prepared:
        """Build the inputs of one batch on the CPU. Either every row has an image, or none has."""
        return self._loaded().prepare(pictures, prompts)

    def _trial(self, side: int) -> tuple[str, np.ndarray | None]:
        """Return the settings that change how fast batches are, in words, and an image of noise."""
        settings = "".join(f" {name} {value}" for name, value in self.processor)
        return f"{self.precision} {side} px{settings}", noise(side, side * 4 // 3)

    def _loaded(self) -> LoadedVlm:
        """Return the model in this process, loaded on first use."""
        from pairmill.ops.models.vision_language.vlm_loaded import load  # imports torch

        return load(self.spec, self.precision, self.processor)
