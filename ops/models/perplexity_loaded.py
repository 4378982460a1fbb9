"""Load a causal language model's weights and run them; the half of ops.models.perplexity that imports torch."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from ops.models.device import device, dtype, exact_inference, token_batches
from ops.models.model_digest import ModelError, resolve

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
        """Compute the perplexity of each text as float64 (n,), in the order given; NaN where it has no token."""
        rows = self.tokenize(texts)
        lengths = [len(row) for row in rows]
        found = [
            (batch, self.mean_losses([rows[row] for row in batch]))
            for batch in token_batches(lengths, batch_size * SENTENCE_TOKENS)
        ]
        losses = np.full(len(texts), np.nan)
        for batch, part in found:  # only here is the device waited for
            losses[batch] = part.cpu().numpy()
        return np.exp(losses)

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


@cache
def load(spec: str, precision: str) -> LoadedLanguageModel:
    """Load the model once a process. Raises ModelError with the remedy."""
    kind = dtype(precision)
    if not spec.startswith("hf:"):
        raise ModelError(f"model '{spec}': transformers loads language models; write 'hf:NAME_OR_FOLDER'")
    folder = str(resolve(spec))
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # one bar a worker would overwrite the run's own
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, local_files_only=True, trust_remote_code=False, weights_only=True,
            output_loading_info=True,
        )  # fmt: skip
    except Exception as error:  # a config of another kind of model, a missing tokenizer, damaged weights
        reason = str(error).strip().splitlines()[0][:200]
        raise ModelError(
            f"model '{spec}' does not load as a causal language model: {reason}; check its config, tokenizer and "
            "weights, or name one such as hf:openai-community/gpt2-large"
        ) from error
    model, report = loaded
    model = model.eval().to(device())
    start = _start_token(spec, model, tokenizer)
    if report["missing_keys"]:
        raise ModelError(_no_language_model(spec, f"its weights lack {min(report['missing_keys'])}"))
    if not _is_causal(model, start):
        raise ModelError(_no_language_model(spec, "what it says of a token depends on the tokens behind it"))
    if kind != torch.float32:
        head = ExactHead(model.get_output_embeddings())  # before its weights, which may be the embeddings', are rounded
        model.to(kind).set_output_embeddings(head)
    return LoadedLanguageModel(model, tokenizer, start)


def _start_token(spec: str, model: Any, tokenizer: Any) -> int:
    """Return the token that the first one is predicted from. Raises ModelError where the tokenizer has none."""
    start = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
    if start is None:
        raise ModelError(
            f"model '{spec}': its tokenizer has no bos_token and no eos_token, from which a sentence's first token is "
            "predicted; name one in its tokenizer_config.json, or use another model"
        )
    known = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > known:
        raise ModelError(
            f"model '{spec}': its tokenizer has {len(tokenizer)} tokens, its weights {known}; they are not of one model"
        )
    return start


def _is_causal(model: Any, start: int) -> bool:
    """Whether what follows a token leaves what the model says of it as it is."""
    ids = torch.tensor([[start, start, start], [start, start, 0 if start else 1]])
    with exact_inference():
        first, second = model(input_ids=ids.to(model.device), use_cache=False).logits[:, :2].float()
    return torch.allclose(first, second, rtol=1e-4, atol=1e-4)


def _no_language_model(spec: str, why: str) -> str:
    return f"model '{spec}' is no causal language model: {why}; name one such as hf:openai-community/gpt2-large"
