"""Answer text prompts with a causal language model of transformers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from pairmill.ops.models.generate.local_model import LocalModel

if TYPE_CHECKING:
    from pairmill.ops.models.generate.loaded_model import Prepared
    from pairmill.ops.models.language.language_model_loaded import LoadedGenerator


@dataclass(frozen=True)
class LanguageModel(LocalModel):
    """Answer prompts without images, greedily, by a causal language model of transformers.

    There is no temperature, no beam search and no penalty, whatever the model's generation_config.json sets for chats.
    The prompt is the user's turn of the model's chat template; a model without a template continues the bare prompt.
    Special tokens that a prompt spells ("<|im_end|>") are encoded as text. A prompt that leaves no room for
    ``max_tokens`` in the model's context (at most 8,192 tokens) gets the error 'too_large'; a prompt without a token
    gets an empty answer. `infer` raises ModelError if ``max_tokens`` fills the whole context.
    """

    batch_size: int = 16

    answer_settings: ClassVar[tuple[str, ...]] = ("precision",)
    shows_images: ClassVar[bool] = False

    def batches(self, prompts: list[str], sizes: list[tuple[int, int] | None] | None = None) -> list[list[int]]:
        """Group row numbers into batches: by cost on a GPU, by similar length on a CPU."""
        return self._loaded().batches(prompts, self.batch_size, self.room) if prompts else []

    def prepare(self, pictures: list[np.ndarray | None], prompts: list[str]) -> Prepared:
        """Tokenize the prompts of one batch on the CPU; ``pictures`` are ignored."""
        return self._loaded().prepare(prompts)

    def _loaded(self) -> LoadedGenerator:
        """Return the model in this process, loaded on first use."""
        from pairmill.ops.models.language.language_model_loaded import load  # imports torch

        return load(self.spec, self.precision)
