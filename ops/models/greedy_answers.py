"""Generate answers greedily with a model of transformers, in batches that fit, each cut at its end token."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from ops.models.device import exact_inference
from ops.models.generation import Generation


def answer_what_fits(ask: Callable[[list[int]], list[Generation]], rows: list[int]) -> list[Generation]:
    """Ask for a batch of row numbers, in halves when the device runs out of memory; one row that alone does not fit
    gets an error."""
    try:
        return ask(rows)
    except torch.cuda.OutOfMemoryError:
        pass  # outside of the handler the failed batch's tensors are free
    torch.cuda.empty_cache()
    if len(rows) == 1:
        return [Generation("", 0, False, 0.0, "out_of_memory")]
    half = len(rows) // 2
    return answer_what_fits(ask, rows[:half]) + answer_what_fits(ask, rows[half:])


class Answerer:
    """A generative model with its tokenizer and the tokens that end its answers."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model, self.tokenizer = model, tokenizer
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        # Generation goes on from the right end of a row, so the padding must stand on the left.
        tokenizer.padding_side = "left"
        self.ends = _end_tokens(model, tokenizer)

    def generate(self, inputs: Any, max_tokens: int) -> torch.Tensor:
        """Generate at most ``max_tokens`` tokens a row, each the likeliest: the model's whole output (n, tokens)."""
        with exact_inference():
            return self.model.generate(
                **inputs,
                max_new_tokens=max_tokens,
                do_sample=False,
                num_beams=1,
                eos_token_id=self.ends or None,
                pad_token_id=self.tokenizer.pad_token_id,
            )

    def read(self, generated: torch.Tensor, started: float) -> list[Generation]:
        """Turn the tokens behind the prompts into answers; ``started``: when the batch was, by time.perf_counter."""
        rows = [self._cut(row) for row in generated.tolist()]
        seconds = (time.perf_counter() - started) / len(rows)
        texts = self.tokenizer.batch_decode([tokens for tokens, _ in rows], skip_special_tokens=True)
        return [
            Generation(text.strip(), len(tokens), finished, seconds)
            for text, (tokens, finished) in zip(texts, rows, strict=True)
        ]

    def _cut(self, tokens: list[int]) -> tuple[list[int], bool]:
        """Cut a row at its first end token; return it, and whether it has one."""
        end = next((place for place, token in enumerate(tokens) if token in self.ends), None)
        return (tokens, False) if end is None else (tokens[:end], True)


def _end_tokens(model: Any, tokenizer: Any) -> list[int]:
    """List the tokens that end an answer: the generation config's, else the tokenizer's own."""
    ends = model.generation_config.eos_token_id
    if ends is None:
        ends = tokenizer.eos_token_id
    return [] if ends is None else [ends] if isinstance(ends, int) else list(ends)
