"""Answer prompts about pictures with a vision-language model of transformers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from pairmill.ops.models.device.batch_size import measured_batch_size
from pairmill.ops.models.generation import Generation

if TYPE_CHECKING:
    from pairmill.ops.models.vision_language.vlm_loaded import LoadedVlm, PreparedImages


@dataclass(frozen=True)
class VisionLanguageModel:
    """Answer prompts about pictures with ``spec`` ('hf:NAME' or 'hf:FOLDER'), greedily: no temperature, no beams.

    Loaded on first use, once a process; pickled without weights. Code from the model's repository is never run.
    ``batch_size`` is placement: rows are padded on the left and masked, so a batch answers as one by one, save for
    rounding (which can flip a near tie between two words, in bf16 mainly). All raise ModelError when it does not load.
    """

    spec: str
    precision: str = "fp32"
    batch_size: int = 8
    version: int = 1

    max_in_flight: ClassVar[int] = 0

    def generate(self, pictures: list[np.ndarray | None], prompts: list[str], max_tokens: int) -> list[Generation]:
        """Generate an answer a row, in the order given. ``pictures``: (h, w, 3) uint8 RGB, or None for text alone.

        Raises ValueError for unequal numbers of pictures and prompts.
        """
        if len(pictures) != len(prompts):
            raise ValueError(f"{len(pictures)} pictures and {len(prompts)} prompts")
        answers: dict[int, Generation] = {}
        for rows in self.batches(prompts, [None if picture is None else picture.shape[:2] for picture in pictures]):
            ready = self.prepare([pictures[row] for row in rows], [prompts[row] for row in rows])
            answers.update(zip(rows, self.fetch(self.infer(ready, max_tokens)), strict=True))
        return [answers[row] for row in range(len(prompts))]

    def fitted(self, prompt: str, side: int, max_tokens: int) -> VisionLanguageModel:
        """Return this model with the batch size at which it answers ``prompt`` fastest on this GPU, about pictures of a
        shorter ``side``; on a CPU as it is. The first call on a GPU generates: no other thread may use the model then.
        """

        def run(rows: int) -> None:
            picture = np.zeros((side, side * 4 // 3, 3), np.uint8)
            self._loaded().answer(self.prepare([picture] * rows, [prompt] * rows), max_tokens)

        shape = f"{self.precision} {side} px {len(prompt)} characters {max_tokens} tokens"
        return replace(self, batch_size=measured_batch_size(self.spec, shape, self.batch_size, run))

    def batches(self, prompts: list[str], sizes: list[tuple[int, int] | None] | None = None) -> list[list[int]]:
        """Group row numbers into batches of like length in tokens; a twentieth of a batch is padding, at most.

        ``sizes``: (height, width) of each row's picture, None for a row without, which never shares a batch with one
        that has one; left out, all rows have pictures of one size.
        """
        return self._loaded().batches(prompts, sizes, self.batch_size) if prompts else []

    def prepare(self, pictures: list[np.ndarray | None], prompts: list[str]) -> PreparedImages:
        """Make on the CPU what the model takes, of one batch in which every row has a picture or none has."""
        return self._loaded().prepare(pictures, prompts)

    def infer(self, prepared: PreparedImages, max_tokens: int) -> list[Generation]:
        """Generate an answer a prepared row; waits for the device. A batch without room is halved; a row that has none
        alone gets the error 'out_of_memory'."""
        return self._loaded().infer(prepared, max_tokens)

    def fetch(self, running: list[Generation]) -> list[Generation]:
        """Return the answers, which are there."""
        return running

    def load(self) -> None:
        """Load the weights now."""
        self._loaded()

    def _loaded(self) -> LoadedVlm:
        # Torch takes 3 CPU seconds to import, and a flow names models that only its workers run.
        from pairmill.ops.models.vision_language.vlm_loaded import load

        return load(self.spec, self.precision)
