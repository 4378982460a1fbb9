"""Score sentences by the perplexity of a causal language model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pairmill.ops.batch import Batch
from pairmill.ops.models.model_digest import ModelError

if TYPE_CHECKING:
    from pairmill.ops.models.language.perplexity_loaded import LoadedLanguageModel

PRECISIONS = ("fp32", "bf16")


@dataclass(frozen=True)
class Perplexity:
    """Read ``text`` (list of sentences); add ``perplexity`` float64 (n,): exp(-mean log p) a token, >= 1, and
    ``fault``: None, or the Fault of a text that had no room on the device even alone, whose perplexity is NaN.

    Over all tokens, the first one predicted from the model's start token (GPT-2's ``<|endoftext|>``). Transformers' own
    loss leaves that first one out; it tells how likely a sentence begins so, and is a third of one of three tokens. Raw
    case. Of a text beyond the context (at most 1,024 tokens, the start token included) only the first tokens count.
    NaN for a text without a token. Thresholds belong to one model: another vocabulary is another scale.

    ``model`` is 'hf:NAME' or 'hf:FOLDER', loaded on first use, once a process; code from its repository is never run.
    ``precision`` ('fp32', 'bf16') is identity. ``batch_size`` is placement: how many sentences of 32 tokens a batch
    holds (GPT-2 has 0.4 GB of logits for 64); padding moves values by rounding only. Raises ModelError for an unknown
    ``precision`` and, on use, for a model that is missing or no causal language model with a start token.
    """

    model: str
    precision: str = "fp32"
    batch_size: int = 64
    version: int = 1

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise ModelError(f"perplexity: precision '{self.precision}'; write one of {', '.join(PRECISIONS)}")

    def __call__(self, batch: Batch) -> Batch:
        return batch | self.fetch(self.infer(self.prepare(batch)))

    def load(self) -> None:
        """Load the weights now."""
        self._loaded()

    def prepare(self, batch: Batch) -> Any:
        """Tokenize the texts on the CPU."""
        return self._loaded().prepare(batch["text"], self.batch_size) if batch["text"] else None

    def infer(self, ready: Any) -> Any:
        """Launch what was prepared; the device is not waited for."""
        return None if ready is None else self._loaded().infer(ready)

    def fetch(self, running: Any) -> Batch:
        """Wait for the device; return the columns ``perplexity`` and ``fault``."""
        if running is None:
            return {"perplexity": np.empty(0), "fault": []}
        return {"perplexity": self._loaded().fetch(running), "fault": running.faults()}

    def _loaded(self) -> LoadedLanguageModel:
        # Torch takes 3 CPU seconds to import, and a flow names models that only its workers run.
        from pairmill.ops.models.language.perplexity_loaded import load

        return load(self.model, self.precision)
