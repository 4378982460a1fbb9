"""Load the weights of a causal language model and run them; the part of perplexity.py that imports torch."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from pairmill.ops.models.device.device import dtype, exact_inference, once
from pairmill.ops.models.device.row_batches import RowBatches, token_batches
from pairmill.ops.models.language.causal_model import load_causal
from pairmill.ops.models.model_digest import ModelError

# Most tokens of a text, start token included: GPT-2's own context. Other models accept a "sentence" of 128k tokens.
CONTEXT = 1024
# Tokens of a typical web sentence in GPT-2's vocabulary, rounded up: the unit of a batch's size.
SENTENCE_TOKENS = 32
# Positions whose losses are computed together: 100 MB of fp32 logits at GPT-2's 50,257 tokens.
POSITIONS = 512


class LoadedLanguageModel:
    """Weights and tokenizer of a causal language model that scores texts, in this process."""

    def __init__(self, model: Any, tokenizer: Any, start: int) -> None:
        self.model, self.tokenizer, self.start = model, tokenizer, start
        self.context = min(getattr(model.config, "max_position_embeddings", None) or CONTEXT, CONTEXT)

    def prepare(self, texts: list[str], batch_size: int) -> RowBatches:
        """Tokenize texts and group them into batches of similar length, each (row numbers, token ids of the rows)."""
        rows = self.tokenize(texts)
        batches = token_batches([len(row) for row in rows], batch_size * SENTENCE_TOKENS)
        return RowBatches(len(texts), [(batch, [rows[row] for row in batch]) for batch in batches])

    def tokenize(self, texts: list[str]) -> list[list[int]]:
        """Return the token ids of each text without the start token, truncated so that both fit the context."""
        # Special tokens that a text spells ("<|endoftext|>") are text: they must not start a new sentence.
        encoded = self.tokenizer(texts, add_special_tokens=False, split_special_tokens=True, verbose=False)
        return [row[: self.context - 1] for row in encoded["input_ids"]]

    def example(self, n: int) -> list[list[int]]:
        """Return ``n`` sentences of SENTENCE_TOKENS random token ids, to measure how long a batch takes."""
        rng, known = np.random.default_rng(0), self.model.get_input_embeddings().num_embeddings
        return rng.integers(0, known, (n, SENTENCE_TOKENS)).tolist()

    def mean_losses(self, rows: list[list[int]]) -> torch.Tensor:
        """Compute the mean of -log p over the tokens of each row (none empty), float64 on the device.

        Rows are padded on the right. Earlier positions of a causal model do not see the padding, so no mask is needed.
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
    """A copy of an output layer that multiplies in fp32, whatever precision the rest of the model has.

    GPT-2's logits can lie near -100, where bf16 has steps of 0.5, too coarse for a perplexity. The layer is a twelfth
    of the multiplications of GPT-2 large.
    """

    def __init__(self, head: Any) -> None:
        super().__init__()
        self.weight = head.weight.detach().clone()
        self.bias = None if getattr(head, "bias", None) is None else head.bias.detach().clone()

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return fp32 logits (…, vocabulary) of hidden states (…, d) in any float type."""
        return F.linear(hidden.float(), self.weight, self.bias)


@once
def load(spec: str, precision: str) -> LoadedLanguageModel:
    """Load the model once per process. Raises ModelError with the remedy if it is missing or has no start token."""
    kind = dtype(precision)
    model, tokenizer = load_causal(spec, torch.float32, "hf:openai-community/gpt2-large")
    start = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
    if start is None:
        raise ModelError(
            f"model '{spec}': its tokenizer has no bos_token and no eos_token, from which a sentence's first token is "
            "predicted; name one in its tokenizer_config.json, or use another model"
        )
    if kind != torch.float32:
        head = ExactHead(model.get_output_embeddings())  # copied before rounding the weights (the embeddings' too)
        model.to(kind).set_output_embeddings(head)
    return LoadedLanguageModel(model, tokenizer, start)
