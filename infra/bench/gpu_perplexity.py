"""Benchmark the perplexity of sentences of 20 tokens by a model of GPT-2 large's shape, beside the matmul rates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from infra.bench.gpu_row import Seen
from infra.bench.gpu_shapes import GPT2_LARGE, GPT2_TOY
from infra.bench.gpu_texts import END, sentences, tokenizer
from infra.bench.gpu_timing import ceilings, device, median

TOKENS = 20  # tokens a sentence
BATCHES = (64, 256, 1024)  # in sentences of 32 tokens, the unit of `Perplexity`


def measure(argument: str, size: str, known: dict[str, Any]) -> Iterator[Seen]:
    """Measure the rate at several batch sizes; report the best beside its bound."""
    shape: dict[str, Any] = GPT2_LARGE if size == "real" else GPT2_TOY
    card = ceilings(size)
    loaded = load(shape)
    texts = sentences(16384 if size == "real" else 32, TOKENS, shape["vocab_size"])
    assert {len(row) for row in loaded.tokenize(texts[:8])} == {TOKENS}
    # The input has one position more than the tokens: the start token, which predicts the first one.
    body = 2.0 * shape["n_layer"] * (12 * shape["n_embd"] ** 2 + TOKENS * shape["n_embd"])
    head = 2.0 * shape["n_embd"] * shape["vocab_size"]
    bound = 1 / (TOKENS * (body / card.bf16 + head / card.fp32))
    rates = {}
    for batch in BATCHES if size == "real" else (2, 4):
        _score(loaded, texts[:batch], batch)
        rates[batch] = len(texts) / median(lambda batch=batch: _score(loaded, texts, batch))
    best = max(rates, key=rates.__getitem__)
    told = f"batches of {best}; {', '.join(f'{batch}: {rate:.0f}' for batch, rate in rates.items())}"
    what = "GPT-2 large's shape, 20 tokens a sentence"
    yield Seen(what, "sentences/s", rates[best], bound, f"{told}; logits in fp32 at {card.fp32 / 1e12:.3g} TFLOP/s")


def _score(loaded: Any, texts: list[str], batch: int) -> None:
    loaded.prepare(texts, batch).launched(loaded.mean_losses).fetched(float)


def load(shape: dict[str, Any]) -> Any:
    """Build the model as `Perplexity` loads one: bf16 with a fp32 output layer on a GPU, else fp32."""
    from transformers import GPT2Config, GPT2LMHeadModel

    from pairmill.ops.models.language.perplexity_loaded import ExactHead, LoadedLanguageModel

    torch.manual_seed(0)
    with torch.device(device()):
        model: Any = GPT2LMHeadModel(GPT2Config(**shape, bos_token_id=END, eos_token_id=END)).eval()
    if device().type == "cuda":
        head = ExactHead(model.get_output_embeddings())
        model.to(torch.bfloat16).set_output_embeddings(head)
    return LoadedLanguageModel(model, tokenizer(shape["vocab_size"]), END)
