"""Generate answers greedily with a transformers model, in batches that fit the device, each cut at its end token."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from pairmill.ops.models.device.device import NO_ROOM, exact_inference, run_in_parts
from pairmill.ops.models.device.failures import first_line, is_broken, is_no_room
from pairmill.ops.models.device.run_notes import note
from pairmill.ops.models.generation import Generation

if TYPE_CHECKING:
    from pairmill.ops.models.generate.captured_decoding import Decoder

Ready = TypeVar("Ready")
# Maximum padding tokens as a share of a batch's tokens. Padding is computed like any other token.
MOST_PADDING = 0.05


def similar_length_batches(lengths: list[int], batch_size: int) -> list[list[int]]:
    """Group row numbers into batches of similar length, longest first, of at most ``batch_size`` rows.

    At most 5 % of a batch's tokens are padding. Ties keep row order, so the batches depend on the lengths (in tokens)
    and the batch size alone.
    """
    order = sorted(range(len(lengths)), key=lambda row: (-lengths[row], row))
    batches: list[list[int]] = []
    tokens = 0  # of the current batch, without padding
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
    """Answer a prepared batch, in halves if the device runs out of memory; a row that does not fit alone gets an error.

    Args:
        ready: The prepared batch of all rows.
        rows: Number of rows.
        ask: Generate the answers of a prepared batch.
        part: Prepare the rows from its first argument to before its second again.
    """

    def answer(at: range) -> list[Generation]:
        return ask(ready if len(at) == rows else part(at.start, at.stop))

    nothing = [Generation("", 0, "length", 0.0, *NO_ROOM)]
    return [each for _, found in run_in_parts(answer, range(rows)) for each in found or nothing]


def n_tokens(inputs: dict[str, Any]) -> list[int]:
    """Count the tokens of each row of a prepared batch, without padding."""
    return inputs["attention_mask"].sum(1).tolist()


def pinned(inputs: dict[str, Any]) -> dict[str, Any]:
    """Move the tensors to pinned memory, from which a GPU copies while it computes; do nothing without a GPU."""
    if not torch.cuda.is_available():
        return inputs
    return {name: value.pin_memory() if torch.is_tensor(value) else value for name, value in inputs.items()}


class Answerer:
    """A generative model with its tokenizer and the ids of its end tokens."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model, self.tokenizer = model, tokenizer
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        # Pad on the left, because generation continues from the right end of a row.
        tokenizer.padding_side = "left"
        self.ends = _end_tokens(model, tokenizer)

    def placed(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Move the tensors to the model's device, and convert floats to the model's dtype."""
        return {name: self._placed(value) if torch.is_tensor(value) else value for name, value in inputs.items()}

    def _placed(self, value: torch.Tensor) -> torch.Tensor:
        """Move one tensor to the model's device, and convert floats to the model's dtype."""
        value = value.to(self.model.device, non_blocking=True)
        return value.to(self.model.dtype) if value.is_floating_point() else value

    @cached_property
    def decoder(self) -> Decoder | None:
        """The captured decoder, for a suited bf16 model on a GPU; None for transformers' own ``generate``."""
        if self.model.device.type != "cuda" or self.model.dtype != torch.bfloat16:
            return None
        from pairmill.ops.models.generate.captured_decoding import Decoder, why_not_capturable
        from pairmill.ops.models.generate.quick_parts import compile_parts

        compile_parts(self.model)
        if why := why_not_capturable(self.model):
            self._note_slow(why)
            return None
        return Decoder(self.model, self.ends, self.tokenizer.pad_token_id or 0)

    def generate(self, inputs: dict[str, Any], max_tokens: int) -> torch.Tensor:
        """Generate at most ``max_tokens`` tokens per row, each the likeliest; return (n, tokens) without the prompts.

        If captured decoding fails, note it and use transformers' slower loop from then on.
        """
        with exact_inference():
            if self.decoder is not None:
                try:
                    return self.decoder.generate(inputs, max_tokens)
                except Exception as error:  # an operation that cannot be captured, among others
                    if is_broken(error):
                        raise
                    if is_no_room(error):
                        self.decoder.release()
                        raise
                    self._note_slow(first_line(error))
                    self.decoder = None
            return self._step_by_step(inputs, max_tokens)

    def _note_slow(self, why: str) -> None:
        """Note that transformers' own loop generates the answers."""
        note(f"{type(self.model).__name__}: answers are generated step by step, which is slower than captured: {why}")

    def _step_by_step(self, inputs: dict[str, Any], max_tokens: int) -> torch.Tensor:
        """Generate with transformers' own greedy loop."""
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
        """Remove the prompt from the output: a decoder repeats it, an encoder-decoder does not."""
        length = given.shape[1]
        repeats = output.shape[1] >= length and torch.equal(output[:, :length], given)
        return output[:, length:] if repeats and not self.model.config.is_encoder_decoder else output

    def read(self, generated: torch.Tensor, tokenizer: Any, prompts: list[int], seconds: float) -> list[Generation]:
        """Decode generated tokens to answers.

        Args:
            generated: Token ids (n, tokens) after the prompts.
            tokenizer: The calling thread's own tokenizer.
            prompts: Number of prompt tokens of each row.
            seconds: Time of the whole batch; each answer gets its share.
        """
        rows = [self._cut(row) for row in generated.tolist()]
        texts = tokenizer.batch_decode([tokens for tokens, _ in rows], skip_special_tokens=True)
        return [
            Generation(text.strip(), len(tokens), finish, seconds / len(rows), prompt_tokens=read)
            for text, (tokens, finish), read in zip(texts, rows, prompts, strict=True)
        ]

    def _cut(self, tokens: list[int]) -> tuple[list[int], str]:
        """Cut a row at its first end token; return the tokens and the finish, 'stop' or 'length'."""
        end = next((place for place, token in enumerate(tokens) if token in self.ends), None)
        return (tokens, "length") if end is None else (tokens[:end], "stop")


def _end_tokens(model: Any, tokenizer: Any) -> list[int]:
    """List the ids of the tokens that end an answer: the generation config's, else the tokenizer's own."""
    ends = model.generation_config.eos_token_id
    if ends is None:
        ends = tokenizer.eos_token_id
    return [] if ends is None else [ends] if isinstance(ends, int) else list(ends)
