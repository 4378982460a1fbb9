"""Benchmark answers of different lengths: a batch ends with its longest answer, and the shorter rows wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from infra.bench.gpu_caption import load, pixels
from infra.bench.gpu_models import fitting_batches
from infra.bench.gpu_row import Seen, value_of
from infra.bench.gpu_shapes import shape_of
from infra.bench.gpu_texts import END, sentences
from infra.bench.gpu_timing import median

# Median as a share of the longest answer, and sigma of the logarithm: captions of 25 to 100 tokens, median 55.
MEDIAN, SPREAD = 0.55, 0.4


def measure(argument: str, size: str, known: dict[str, Any]) -> Iterator[Seen]:
    """Measure captions with log-normal lengths, and their ratio to captions of equal length."""
    shape = shape_of(argument, size)
    rows = fitting_batches(shape)[-1]
    loaded = load(shape)
    drawn = lengths(rows, shape.answer)
    ending = loaded.model.lm_head = EndAt(loaded.model.lm_head, drawn)
    ready = loaded.prepare(pixels(rows, shape), sentences(rows, shape.prompt, shape.decoder.vocabulary))

    def answer() -> list[Any]:
        ending.step.zero_()
        return loaded.infer(ready, shape.answer)

    answer()  # captures the decoding steps, so that the timed batches need not
    tokens = sum(found.n_tokens for found in answer())
    rate = rows / median(answer)
    note = f"batches of {rows}, {tokens / rows:.0f} tokens in the mean, {max(drawn)} at most"
    yield Seen("captions, lengths of a corpus", "img/s", rate, note=note)
    yield Seen("tokens kept, lengths of a corpus", "tokens/s", rate * tokens / rows)
    whole = value_of(known, f"caption_{argument}", "captions", size)
    if whole:
        yield Seen("beside answers of equal length", "times", rate / whole)


def lengths(rows: int, longest: int) -> list[int]:
    """Draw the log-normal lengths of ``rows`` answers, at most ``longest`` tokens."""
    drawn = np.random.default_rng(0).lognormal(np.log(MEDIAN * longest), SPREAD, rows)
    return np.clip(drawn.astype(int), 1, longest).tolist()


class EndAt(torch.nn.Module):
    """Output layer that ends row i after ``lengths[i]`` tokens; set ``step`` to 0 before each batch."""

    lengths: torch.Tensor
    step: torch.Tensor

    def __init__(self, head: Any, lengths: list[int]) -> None:
        super().__init__()
        self.head, self.weight = head, head.weight
        self.register_buffer("lengths", torch.tensor(lengths, device=head.weight.device))
        self.register_buffer("step", torch.zeros((), dtype=torch.long, device=head.weight.device))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the logits; those of ended rows make END the most likely token."""
        logits = self.head(hidden)
        ended = self.step >= self.lengths[: len(logits)]
        self.step += 1
        top = torch.finfo(logits.dtype).max
        logits[..., END] = torch.where(ended[:, None], top, logits[..., END])
        return logits
