"""Score sentences by their perplexity under a causal language model."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pairmill.ops.batch import Batch
from pairmill.ops.models.device.batch_size import known_batch_size, measured_batch_size
from pairmill.ops.models.device.batched_score import BatchedScore

if TYPE_CHECKING:
    import torch

    from pairmill.ops.models.device.row_batches import RowBatches
    from pairmill.ops.models.language.perplexity_loaded import LoadedLanguageModel


@dataclass(frozen=True)
class Perplexity(BatchedScore):
    """Read ``text`` (list of sentences); add ``perplexity`` float64 (n,), exp(-mean log p) per token, and ``fault``.

    Values are >= 1. The mean is over all tokens, the first one predicted from the model's start token (GPT-2's
    ``<|endoftext|>``). Transformers' own loss omits that first token, which tells how likely a sentence is to begin so;
    in a sentence of three tokens it is a third of the mean. Case is kept. For a text beyond the context (at most 1,024
    tokens, the start token included) only the first tokens count. A text without a token has perplexity NaN. A
    threshold belongs to one model: another vocabulary gives another scale.

    ``model`` is 'hf:NAME' or 'hf:FOLDER' of a causal language model with a start token. ``batch_size`` is the number of
    32-token sentences per batch (GPT-2's logits for 64 take 0.4 GB).
    """

    name: ClassVar[str] = "perplexity"
    reads: ClassVar[str] = "text"
    adds: ClassVar[str] = "perplexity"

    def load(self) -> None:
        """Load the weights now, and find the fastest batch size."""

        def run(rows: int) -> None:
            self._loaded().mean_losses(self._loaded().example(rows)).cpu()

        self._loaded()
        measured_batch_size(self.model, f"{self.precision} sentences", self.batch_size, run)

    def inputs(self, batch: Batch) -> "RowBatches":
        """Tokenize the texts of ``batch`` into the model's inputs, on the CPU."""
        rows = known_batch_size(self.model, f"{self.precision} sentences", self.batch_size)
        return self._loaded().prepare(batch["text"], rows)

    def run(self, rows: Any) -> "torch.Tensor":
        """Launch the model on tokenized texts; return their mean losses (n,) on the device."""
        return self._loaded().mean_losses(rows)

    def values(self, launched: "RowBatches") -> np.ndarray:
        """Wait for the device; return the perplexities of all rows, float64 (n,)."""
        return np.exp(launched.fetched(np.float64))

    def _loaded(self) -> "LoadedLanguageModel":
        """Return the model in this process, loaded on first use."""
        from pairmill.ops.models.language.perplexity_loaded import load  # imports torch, 3 CPU s

        return load(self.model, self.precision)
