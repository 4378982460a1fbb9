"""Benchmark captions by transformers' plain `generate` with its growing cache: at its best batch, and in eights.

Eight rows was the fixed batch size before batches were fitted to the GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from PIL import Image

from infra.bench.gpu_caption import decoded, pixels
from infra.bench.gpu_models import fitting_batches, random_vlm
from infra.bench.gpu_row import Seen, value_of
from infra.bench.gpu_shapes import Vlm, shape_of
from infra.bench.gpu_texts import END, PAD, processor, sentences
from infra.bench.gpu_timing import ceilings, decode_bound, device, median, prefill_bound, seconds

BEFORE = 8  # rows a batch, the fixed size before batches were fitted to the GPU


def measure(argument: str, size: str, known: dict[str, Any]) -> Iterator[Seen]:
    """Measure plain `generate`, and its ratio to the captioning row that was measured before."""
    shape = shape_of(argument, size)
    card = ceilings(size)
    plain = Plain(shape)
    rates = {rows: rows / seconds for rows in fitting_batches(shape) if (seconds := plain.fits(rows))}
    best = max(rates, key=rates.__getitem__)
    whole, first = (median(lambda tokens=tokens: plain.generate(best, tokens)) for tokens in (shape.answer, 1))
    bounds = prefill_bound(shape, best, card), decode_bound(shape, best, card)
    told = f"batches of {best}; {', '.join(f'{rows}: {rate:.1f}' for rows, rate in rates.items())}; {card.note()}"
    yield Seen("captions, plain generate at its best batch", "img/s", best / whole, best / sum(bounds), told)
    tokens = decoded("decoded, plain generate", shape, best, whole - first, bounds[1])
    yield tokens
    eight = BEFORE / median(lambda: plain.generate(BEFORE, shape.answer), 2)
    yield Seen("captions, batches of 8", "img/s", eight)
    row = f"caption_{argument}"
    for what, ours, theirs in (("", "captions", best / whole), (", decode alone", "decoded", tokens.value)):
        value = value_of(known, row, ours, size)
        if value is None or theirs is None:
            yield Seen(
                f"ours / plain generate{what}", "times", None, note=f"not measured: one of both ({row}) is missing"
            )
        else:
            yield Seen(f"ours / plain generate{what}", "times", value / theirs)


class Plain:
    """A model and its processor, used as in transformers' own examples."""

    def __init__(self, shape: Vlm) -> None:
        self.shape = shape
        self.model = random_vlm(shape, device())
        self.processor = processor(shape.tower.side, shape.tower.patch * shape.tower.merge, shape.decoder.vocabulary)
        self.processor.tokenizer.padding_side = "left"

    def fits(self, rows: int) -> float:
        """Return the seconds of a batch, or 0 if it does not fit the memory."""
        try:
            return seconds(lambda: self.generate(rows, self.shape.answer))
        except torch.OutOfMemoryError:
            pass  # outside of the handler the failed batch's tensors are freed
        torch.cuda.empty_cache()
        return 0.0

    def generate(self, rows: int, tokens: int) -> torch.Tensor:
        """Answer ``rows`` pictures with ``tokens`` tokens each; the processor's work is cached."""
        with torch.inference_mode():
            return self.model.generate(
                **self._inputs(rows), max_new_tokens=tokens, do_sample=False, eos_token_id=END, pad_token_id=PAD
            )

    def _inputs(self, rows: int) -> dict[str, torch.Tensor]:
        """Return the model's inputs for ``rows`` pictures, cached for the last number of rows."""
        if getattr(self, "made", (0,))[0] != rows:
            self.made = rows, self._prepare(rows)
        return self.made[1]

    def _prepare(self, rows: int) -> dict[str, torch.Tensor]:
        texts = [f"<image>{text}" for text in sentences(rows, self.shape.prompt, self.shape.decoder.vocabulary)]
        images = [[Image.fromarray(picture)] for picture in pixels(rows, self.shape)]
        inputs = self.processor(text=texts, images=images, padding=True, return_tensors="pt").to(device())
        return {
            name: value.to(self.model.dtype) if value.is_floating_point() else value for name, value in inputs.items()
        }
