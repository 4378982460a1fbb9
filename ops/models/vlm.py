"""Answer prompts about pictures with a vision-language model of transformers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ops.models.generation import Generation


@dataclass(frozen=True)
class VisionLanguageModel:
    """Answer prompts about pictures with ``spec`` ('hf:NAME' or 'hf:FOLDER'), greedily: no temperature, no beams.

    Loaded on first use, once a process; pickled without weights. Code from the model's repository is never run.
    ``batch_size`` is placement: rows are padded on the left and masked, so a batch answers as one by one, save for
    rounding (which can flip a near tie between two words, in bf16 mainly). Raises ModelError when it does not load.
    """

    spec: str
    precision: str = "fp32"
    batch_size: int = 8
    version: int = 1

    def generate(self, pictures: list[np.ndarray | None], prompts: list[str], max_tokens: int) -> list[Generation]:
        """Generate an answer a row, in the order given. ``pictures``: (h, w, 3) uint8 RGB, or None for text alone.

        Raises ValueError for unequal numbers of pictures and prompts, ModelError when the model does not load.
        """
        if len(pictures) != len(prompts):
            raise ValueError(f"{len(pictures)} pictures and {len(prompts)} prompts")
        # Torch takes 3 CPU seconds to import, and a flow names models that only its workers run.
        from ops.models.vlm_loaded import generate

        return generate(self.spec, self.precision, self.batch_size, pictures, prompts, max_tokens)
