"""Generate answers greedily with a model of transformers, in batches that fit, each cut at its end token."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from pairmill.ops.models.device.device import NO_ROOM, exact_inference, run_in_parts
from pairmill.ops.models.generation import Generation

if TYPE_CHECKING:
    from pairmill.ops.models.generate.captured_decoding import Decoder

Ready = TypeVar("Ready")
# A batch's padding over its tokens. What is padded is computed all the same.
MOST_PADDING = 0.05


def similar_length_batches(lengths: list[int], batch_size: int) -> list[list[int]]:
    """Group row numbers into batches of like length, longest first, of at most ``batch_size`` rows.

    At most a twentieth of a batch's tokens is padding. Ties stand in row order: the batches are a function of the
    lengths (in tokens) and the size alone.
    """
    order = sorted(range(len(lengths)), key=lambda row: (-lengths[row], row))
    batches: list[list[int]] = []
    tokens = 0  # of the batch, without its padding
    for row in order:
        padded = lengths[batches[-1][0]] * (len(batches[-1]) + 1) if batches else 0
        if not batches or len(batches[-1]) == batch_size or padded - tokens - lengths[row] > MOST_PADDING * padded:
            batches.append([])
            tokens = 0
        batches[-1].append(row)
        tokens += lengths[row]
    return batches


def answer_in_parts(
    ready: Ready, rows: int, ask: Callable[[Ready], list[Generation]], part: Callable[[int, int], Ready]
) -> list[Generation]:
    """Ask for a prepared batch, in halves when the device runs out of memory; one row that alone does not fit gets an
    error. ``part`` prepares the rows from its first number to before its second anew."""

    def answer(at: range) -> list[Generation]:
        return ask(ready if len(at) == rows else part(at.start, at.stop))

    nothing = [Generation("", 0, "length", 0.0, *NO_ROOM)]
    return [each for _, found in run_in_parts(answer, range(rows)) for each in found or nothing]


def n_tokens(inputs: dict[str, Any]) -> list[int]:
    """Count the tokens of each row of a prepared batch, its padding not."""
    return inputs["attention_mask"].sum(1).tolist()


def pinned(inputs: dict[str, Any]) -> dict[str, Any]:
    """Put the tensors where a GPU copies from while it computes; without a GPU, leave them."""
    if not torch.cuda.is_available():
        return inputs
    return {name: value.pin_memory() if torch.is_tensor(value) else value for name, value in inputs.items()}


class Answerer:
    """A generative model with its tokenizer and the tokens that end its answers."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model, self.tokenizer = model, tokenizer
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        # Generation goes on from the right end of a row, so the padding must stand on the left.
        tokenizer.padding_side = "left"
        self.ends = _end_tokens(model, tokenizer)

    def placed(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Put the tensors onto the model's device, numbers with a fraction in the model's format."""
        return {name: self._placed(value) if torch.is_tensor(value) else value for name, value in inputs.items()}

    def _placed(self, value: torch.Tensor) -> torch.Tensor:
        value = value.to(self.model.device, non_blocking=True)
        return value.to(self.model.dtype) if value.is_floating_point() else value

    @cached_property
    def decoder(self) -> Decoder | None:
        """Choose the quick decoding of a GPU in bf16, where the model suits it; None for transformers' own."""
        if self.model.device.type != "cuda" or self.model.dtype != torch.bfloat16:
            return None
        from pairmill.ops.models.generate.captured_decoding import Decoder, why_not_capturable
        from pairmill.ops.models.generate.quick_parts import compile_parts

        compile_parts(self.model)
        if why := why_not_capturable(self.model):
            warnings.warn(f"answers are generated step by step, slower: {why}", stacklevel=2)
            return None
        return Decoder(self.model, self.ends, self.tokenizer.pad_token_id or 0)

    def generate(self, inputs: dict[str, Any], max_tokens: int) -> torch.Tensor:
        """Generate at most ``max_tokens`` tokens a row, each the likeliest: all behind the prompts (n, tokens)."""
        with exact_inference():
            if self.decoder is not None:
                try:
                    return self.decoder.generate(inputs, max_tokens)
                except torch.cuda.OutOfMemoryError:
                    self.decoder.release()
                    raise
                except Exception as error:  # what a model does that no capture allows; a broken device raises below
                    reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
                    warnings.warn(f"answers are generated step by step, slower: {reason}", stacklevel=2)
                    self.decoder = None
            return self._step_by_step(inputs, max_tokens)

    def _step_by_step(self, inputs: dict[str, Any], max_tokens: int) -> torch.Tensor:
        output = self.model.generate(
            **inputs,
            max_new_tokens=max_tokens,
            do_sample=False,
            num_beams=1,
            eos_token_id=self.ends or None,
            pad_token_id=self.tokenizer.pad_token_id,
        )
        return self._without_prompt(output, inputs["input_ids"])

    def _without_prompt(self, output: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
        """Cut the prompt off the output, which a decoder repeats and an encoder-decoder does not."""
        length = given.shape[1]
        repeats = output.shape[1] >= length and torch.equal(output[:, :length], given)
        return output[:, length:] if repeats and not self.model.config.is_encoder_decoder else output

    def read(self, generated: torch.Tensor, tokenizer: Any, prompts: list[int], seconds: float) -> list[Generation]:
        """Turn the tokens behind the prompts, which had so many each, into answers; ``seconds``: what all took."""
        rows = [self._cut(row) for row in generated.tolist()]
        texts = tokenizer.batch_decode([tokens for tokens, _ in rows], skip_special_tokens=True)
        return [
            Generation(text.strip(), len(tokens), finish, seconds / len(rows), prompt_tokens=read)
            for text, (tokens, finish), read in zip(texts, rows, prompts, strict=True)
        ]

    def _cut(self, tokens: list[int]) -> tuple[list[int], str]:
        """Cut a row at its first end token; return it, and why it ends."""
        end = next((place for place, token in enumerate(tokens) if token in self.ends), None)
        return (tokens, "length") if end is None else (tokens[:end], "stop")


def _end_tokens(model: Any, tokenizer: Any) -> list[int]:
    """List the tokens that end an answer: the generation config's, else the tokenizer's own."""
    ends = model.generation_config.eos_token_id
    if ends is None:
        ends = tokenizer.eos_token_id
    return [] if ends is None else [ends] if isinstance(ends, int) else list(ends)
