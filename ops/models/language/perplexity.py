"""Score sentences by their perplexity under a causal language model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pairmill.ops.batch import Batch
from pairmill.ops.models.device.batch_size import known_batch_size, measured_batch_size
from pairmill.ops.models.model_digest import ModelError

if TYPE_CHECKING:
    from pairmill.ops.models.language.perplexity_loaded import LoadedLanguageModel

PRECISIONS = ("fp32", "bf16")


@dataclass(frozen=True)
class Perplexity:
    """Read ``text`` (list of sentences); add ``perplexity`` float64 (n,), exp(-mean log p) per token, and ``fault``.

    ``perplexity`` is >= 1. ``fault`` is None, or the Fault of a text that does not fit the device on its own; the
    perplexity of that text is NaN.

    The mean is over all tokens, the first one predicted from the model's start token (GPT-2's ``<|endoftext|>``).
    Transformers' own loss omits that first token, which tells how likely a sentence is to begin so; in a sentence of
    three tokens it is a third of the mean. Case is kept. For a text beyond the context (at most 1,024 tokens, the start
    token included) only the first tokens count. A text without a token has perplexity NaN. A threshold belongs to one
    model: another vocabulary gives another scale.

    ``model`` is 'hf:NAME' or 'hf:FOLDER' and loads on first use, once per process; code from its repository never runs.
    ``precision`` ('fp32', 'bf16') is part of the score's identity. ``batch_size`` is not: it is the number of 32-token
    sentences per batch (GPT-2's logits for 64 take 0.4 GB), and padding changes values by rounding only.

    Raises:
        ModelError: ``precision`` is unknown; on use, the model is missing or no causal language model with a start
            token.
    """

    model: str
    precision: str = "fp32"
    batch_size: int = 64
    version: int = 1

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise ModelError(f"perplexity: precision '{self.precision}'; write one of {', '.join(PRECISIONS)}")

    def __call__(self, batch: Batch) -> Batch:
        """Return the batch with the columns ``perplexity`` and ``fault`` added."""
        return batch | self.fetch(self.infer(self.prepare(batch)))

    def load(self) -> None:
        """Load the weights now, and find the batch size."""

        def run(rows: int) -> None:
            self._loaded().mean_losses(self._loaded().example(rows)).cpu()

        self._loaded()
        measured_batch_size(self.model, f"{self.precision} sentences", self.batch_size, run)

    def prepare(self, batch: Batch) -> Any:
        """Tokenize the texts on the CPU; return None for an empty batch."""
        rows = known_batch_size(self.model, f"{self.precision} sentences", self.batch_size)
        return self._loaded().prepare(batch["text"], rows) if batch["text"] else None

    def infer(self, ready: Any) -> Any:
        """Launch the prepared batches without waiting for the device."""
        return None if ready is None else self._loaded().infer(ready)

    def fetch(self, running: Any) -> Batch:
        """Wait for the device; return the columns ``perplexity`` and ``fault``."""
        if running is None:
            return {"perplexity": np.empty(0), "fault": []}
        return {"perplexity": self._loaded().fetch(running), "fault": running.faults()}

    def _loaded(self) -> LoadedLanguageModel:
        """Return the model in this process, loaded on first use."""
        # Imported here: torch takes 3 CPU seconds, and the flow process only names models; workers run them.
        from pairmill.ops.models.language.perplexity_loaded import load

        return load(self.model, self.precision)
