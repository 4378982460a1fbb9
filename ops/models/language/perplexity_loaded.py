"""Load a causal language model's weights and run them; the half of ops.models.language.perplexity that imports torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from pairmill.ops.models.device.device import dtype, exact_inference, token_batches
from pairmill.ops.models.device.loading import once
from pairmill.ops.models.device.row_batches import RowBatches
from pairmill.ops.models.language.causal_model import load_causal
from pairmill.ops.models.model_digest import ModelError

# The longest text, start token included: GPT-2's own context. Others would take in 128k tokens of one "sentence".
CONTEXT = 1024
# A sentence of the web in GPT-2's tokens, rounded up: the unit in which a batch is measured.
SENTENCE_TOKENS = 32
# Positions whose logits are turned into losses together: 100 MB of fp32 at GPT-2's 50,257 words.
POSITIONS = 512


class LoadedLanguageModel:
    """The weights and the tokenizer of a causal language model in this process."""

    def __init__(self, model: Any, tokenizer: Any, start: int) -> None:
        self.model, self.tokenizer, self.start = model, tokenizer, start
        self.context = min(getattr(model.config, "max_position_embeddings", None) or CONTEXT, CONTEXT)

    def perplexity(self, texts: list[str], batch_size: int) -> np.ndarray:
        """Compute the perplexity of each text as float64 (n,), in the order given; NaN for one without a token or
        room."""
        return self.fetch(self.infer(self.prepare(texts, batch_size)))

    def prepare(self, texts: list[str], batch_size: int) -> RowBatches:
        """Tokenize the texts and group them into batches of like length, (rows, their tokens) each."""
        rows = self.tokenize(texts)
        batches = token_batches([len(row) for row in rows], batch_size * SENTENCE_TOKENS)
        return RowBatches(len(texts), [(batch, [rows[row] for row in batch]) for batch in batches])

    def infer(self, ready: RowBatches) -> RowBatches:
        """Launch all batches; each has its mean losses instead of its tokens then, on the device."""
        return ready.launched(self.mean_losses)

    def fetch(self, running: RowBatches) -> np.ndarray:
        """Return the perplexities (n,); only here is the device waited for."""
        return np.exp(running.fetched(np.float64))

    def tokenize(self, texts: list[str]) -> list[list[int]]:
        """Return the tokens of each text, without the start token and cut so that both fit the context."""
        # What a text writes like a special token ("<|endoftext|>") is text: it must not start the sentence anew.
        encoded = self.tokenizer(texts, add_special_tokens=False, split_special_tokens=True, verbose=False)
        return [row[: self.context - 1] for row in encoded["input_ids"]]

    def mean_losses(self, rows: list[list[int]]) -> torch.Tensor:
        """Compute the mean of -log p over the tokens of each row (none empty), float64 on the device.

        Rows are padded on the right, which a causal model's earlier positions do not see: no mask is needed.
        """
        longest = max(map(len, rows))
        ids = torch.tensor([[self.start, *row, *[self.start] * (longest - len(row))] for row in rows])
        sizes = torch.tensor([len(row) for row in rows])
        wanted = (torch.arange(longest) < sizes[:, None]).to(self.model.device)
        ids, sizes = ids.to(self.model.device), sizes.to(self.model.device)
        with exact_inference():
            logits = self.model(input_ids=ids[:, :-1], use_cache=False).logits.flatten(0, 1)
            parts = zip(logits.split(POSITIONS), ids[:, 1:].flatten().split(POSITIONS), strict=True)
            losses = torch.cat([F.cross_entropy(part.float(), said, reduction="none") for part, said in parts])
            return torch.where(wanted, losses.view(wanted.shape).double(), 0).sum(1) / sizes


class ExactHead(torch.nn.Module):
    """Copy an output layer, to multiply in fp32 whatever the rest of the model computes in.

    GPT-2's logits can lie near -100, where bf16 has steps of 0.5 and no perplexity survives. The layer is a twelfth of
    the multiplications of its large form.
    """

    def __init__(self, head: Any) -> None:
        super().__init__()
        self.weight = head.weight.detach().clone()
        self.bias = None if getattr(head, "bias", None) is None else head.bias.detach().clone()

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return F.linear(hidden.float(), self.weight, self.bias)


@once
def load(spec: str, precision: str) -> LoadedLanguageModel:
    """Load the model once a process. Raises ModelError with the remedy."""
    kind = dtype(precision)
    model, tokenizer = load_causal(spec, torch.float32, "hf:openai-community/gpt2-large")
    start = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
    if start is None:
        raise ModelError(
            f"model '{spec}': its tokenizer has no bos_token and no eos_token, from which a sentence's first token is "
            "predicted; name one in its tokenizer_config.json, or use another model"
        )
    if kind != torch.float32:
        head = ExactHead(model.get_output_embeddings())  # before its weights, which may be the embeddings', are rounded
        model.to(kind).set_output_embeddings(head)
    return LoadedLanguageModel(model, tokenizer, start)
