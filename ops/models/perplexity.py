"""Score sentences by the perplexity of a causal language model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ops.batch import Batch
from ops.models.model_digest import ModelError

PRECISIONS = ("fp32", "bf16")


@dataclass(frozen=True)
class Perplexity:
    """Read ``text`` (list of sentences); add ``perplexity`` float64 (n,): exp(-mean log p) a token, >= 1.

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
        if not batch["text"]:
            return batch | {"perplexity": np.empty(0)}
        # Torch takes 3 CPU seconds to import, and a flow names models that only its workers run.
        from ops.models.perplexity_loaded import load

        model = load(self.model, self.precision)
        return batch | {"perplexity": model.perplexity(batch["text"], self.batch_size)}
