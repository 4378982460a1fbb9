"""Answer prompts with a causal language model of transformers, from text alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from pairmill.ops.models.device.batch_size import measured_batch_size
from pairmill.ops.models.generation import Generation

if TYPE_CHECKING:
    from pairmill.ops.models.language.language_model_loaded import LoadedGenerator, PreparedTexts


@dataclass(frozen=True)
class LanguageModel:
    """Answer prompts with ``spec`` ('hf:NAME' or 'hf:FOLDER'), greedily: the likeliest token each time, no temperature,
    no beams, and no penalties, whatever the model's generation_config.json has for chats.

    A prompt is the user's turn of the model's chat template; a model without one goes on from the bare prompt. What a
    prompt writes like a special token ("<|im_end|>") is text. One that leaves no room for ``max_tokens`` in the model's
    context (at most 8,192 tokens) gets the error 'too_large'; one without a token an empty answer.

    Loaded on first use, once a process; pickled without weights. Code from the model's repository is never run.
    ``batch_size`` is placement: rows of like length are padded on the left and masked, so a batch answers as one by
    one, save for rounding (which can flip a near tie between two words, in bf16 mainly).
    """

    spec: str
    precision: str = "fp32"
    batch_size: int = 16
    version: int = 1

    max_in_flight: ClassVar[int] = 0

    def generate(self, prompts: list[str], max_tokens: int) -> list[Generation]:
        """Generate an answer a prompt, in the order given.

        Raises ModelError when the model is missing, no causal language model, or one that sees pictures, and when
        ``max_tokens`` fill its whole context.
        """
        answers: dict[int, Generation] = {}
        for rows in self.batches(prompts):
            found = self.infer(self.prepare([None] * len(rows), [prompts[row] for row in rows]), max_tokens)
            answers.update(zip(rows, found, strict=True))
        return [answers[row] for row in range(len(prompts))]

    def fitted(self, prompt: str, side: int, max_tokens: int) -> LanguageModel:
        """Return this model with the batch size at which it answers ``prompt`` fastest on this GPU; on a CPU as it is.

        The first call on a GPU generates: no other thread may use the model then.
        """

        def run(rows: int) -> None:
            self._loaded().answer(self._loaded().prepare([prompt] * rows), max_tokens)

        shape = f"{self.precision} {len(prompt)} characters {max_tokens} tokens"
        return replace(self, batch_size=measured_batch_size(self.spec, shape, self.batch_size, run))

    def batches(self, prompts: list[str], sizes: list[tuple[int, int] | None] | None = None) -> list[list[int]]:
        """Group row numbers into batches of like length in tokens; a twentieth of a batch is padding, at most."""
        return self._loaded().batches(prompts, self.batch_size) if prompts else []

    def prepare(self, pictures: list[np.ndarray | None], prompts: list[str]) -> PreparedTexts:
        """Make on the CPU what the model takes, of one batch; it sees no pictures."""
        return self._loaded().prepare(prompts)

    def infer(self, prepared: PreparedTexts, max_tokens: int) -> list[Generation]:
        """Generate an answer a prepared row; waits for the device. A batch without room is halved; a row that has none
        alone gets the error 'out_of_memory'. Raises ModelError when ``max_tokens`` fill the model's whole context."""
        return self._loaded().infer(prepared, max_tokens)

    def fetch(self, running: list[Generation]) -> list[Generation]:
        """Return the answers, which are there."""
        return running

    def load(self) -> None:
        """Load the weights now."""
        self._loaded()

    def _loaded(self) -> LoadedGenerator:
        # Torch takes 3 CPU seconds to import, and a flow names models that only its workers run.
        from pairmill.ops.models.language.language_model_loaded import load

        return load(self.spec, self.precision)
