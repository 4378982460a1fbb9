"""Answer text prompts with a causal language model of transformers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from pairmill.ops.models.device.batch_size import measured_batch_size
from pairmill.ops.models.generation import Generation

if TYPE_CHECKING:
    from pairmill.ops.models.generate.refilled_answers import RunningAnswers
    from pairmill.ops.models.language.language_model_loaded import LoadedGenerator, PreparedTexts


@dataclass(frozen=True)
class LanguageModel:
    """Answer prompts with ``spec`` ('hf:NAME' or 'hf:FOLDER') greedily: each token is the likeliest one.

    There is no temperature, no beam search and no penalty, whatever the model's generation_config.json sets for chats.
    The prompt is the user's turn of the model's chat template; a model without a template continues the bare prompt.
    Special tokens that a prompt spells ("<|im_end|>") are encoded as text. A prompt that leaves no room for
    ``max_tokens`` in the model's context (at most 8,192 tokens) gets the error 'too_large'; a prompt without a token
    gets an empty answer.

    Weights load on first use, once per process, and are not pickled. Code from the model's repository never runs.
    ``batch_size`` does not change answers: rows of similar length are padded on the left and masked. Only rounding may
    flip a near tie between two words, mainly in bf16. ``room`` is the most prompt tokens of a batch on a
    GPU; 0: no limit.
    """

    spec: str
    precision: str = "fp32"
    batch_size: int = 16
    version: int = 1
    room: int = 0

    max_in_flight: ClassVar[int] = 0
    answer_settings: ClassVar[tuple[str, ...]] = ("precision",)
    shows_images: ClassVar[bool] = False

    def generate(self, prompts: list[str], max_tokens: int) -> list[Generation]:
        """Generate one answer per prompt, in input order.

        Raises:
            ModelError: The model is missing, no causal language model, or a vision-language model; or ``max_tokens``
                fills its whole context.
        """
        batches = self.batches(prompts)
        running = [
            self.infer(self.prepare([None] * len(rows), [prompts[row] for row in rows]), max_tokens) for rows in batches
        ]
        found = [zip(rows, self.fetch(each), strict=True) for rows, each in zip(batches, running, strict=True)]
        answers = dict(pair for pairs in found for pair in pairs)
        return [answers[row] for row in range(len(prompts))]

    def fitted(self, prompt: str, side: int, max_tokens: int) -> LanguageModel:
        """Return this model with the batch size that is fastest for ``prompt`` on this GPU; on a CPU, unchanged.

        The first call on a GPU generates: no other thread may use the model meanwhile.
        """
        loaded = self._loaded()
        if loaded.model.device.type != "cuda":
            return self

        def run(rows: int) -> None:
            with loaded.answerer.endless():
                loaded.answer(loaded.prepare([prompt] * rows), max_tokens)

        shape = f"{self.precision} {len(prompt)} characters {max_tokens} tokens"
        rows = measured_batch_size(self.spec, shape, self.batch_size, run)
        return replace(self, batch_size=rows, room=rows * len(loaded.tokenize(prompt)))

    def batches(self, prompts: list[str], sizes: list[tuple[int, int] | None] | None = None) -> list[list[int]]:
        """Group row numbers into batches: on a GPU by what they cost, on a CPU of rows of similar length."""
        return self._loaded().batches(prompts, self.batch_size, self.room) if prompts else []

    def prepare(self, pictures: list[np.ndarray | None], prompts: list[str]) -> PreparedTexts:
        """Tokenize the prompts of one batch on the CPU; ``pictures`` are ignored."""
        return self._loaded().prepare(prompts)

    def infer(self, prepared: PreparedTexts, max_tokens: int) -> list[Generation] | RunningAnswers:
        """Generate one answer per prepared row.

        A captured decoder decodes the rows in ``batch_size`` slots beside those of other batches: then this only begins
        them. Any other batch is waited for. A batch that does not fit is halved; a single row that does not fit gets
        the error 'out_of_memory'. Raises ModelError if ``max_tokens`` fills the model's whole context.
        """
        return self._loaded().infer(prepared, max_tokens, self.batch_size)

    def fetch(self, running: list[Generation] | RunningAnswers) -> list[Generation]:
        """Wait for the answers of a batch."""
        return running if isinstance(running, list) else running.result()

    def load(self) -> None:
        """Load the weights now; on a GPU, also try whether decoding can be captured."""
        _ = self._loaded().answerer.decoder

    def _loaded(self) -> LoadedGenerator:
        """Return the model in this process, loaded on first use."""
        # Imported here: torch takes 3 CPU seconds, and the flow process only names models; workers run them.
        from pairmill.ops.models.language.language_model_loaded import load

        return load(self.spec, self.precision)
