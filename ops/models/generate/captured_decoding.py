"""Decode greedily over buffers of fixed shape, so that a GPU replays one captured CUDA graph per token."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from pairmill.ops.models.generate.decoding_buffers import Buffers

# Prompt and answer together are rounded up to a multiple of 64 tokens, rows to powers of two and 1.5 times those, so
# that there are few shapes to capture.
TOKENS = 64
# Check every 8 steps whether all answers have ended, because each check waits for the device.
LOOK = 8
# Settings of a generation config that change the likeliest token, besides the repetition penalty.
OTHER_RULES = (
    "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "encoder_repetition_penalty", "min_length",
    "min_new_tokens", "bad_words_ids", "suppress_tokens", "begin_suppress_tokens", "forced_bos_token_id",
    "forced_eos_token_id", "exponential_decay_length_penalty", "sequence_bias", "guidance_scale", "watermarking_config",
    "remove_invalid_values", "prompt_lookup_num_tokens",
)  # fmt: skip


class NotCapturable(Exception):
    """Raised when a model cannot decode over fixed buffers."""


def why_not_capturable(model: Any) -> str:
    """Return '' if a transformers model may decode over fixed buffers, else the reason why not.

    Whether it does so rightly, only a trial tells (`trial`).
    """
    if model.config.is_encoder_decoder:
        return f"{type(model).__name__} is an encoder and a decoder"
    if type(model).generate.__qualname__ != "GenerationMixin.generate":  # BLIP, BLIP-2: it wraps a language model
        return f"{type(model).__name__} has a generate method of its own"
    rules = [name for name in OTHER_RULES if getattr(model.generation_config, name, None) not in (None, 0, 1, 1.0, [])]
    return f"its generation_config.json has {rules[0]}" if rules else ""


class Decoder:
    """Generate greedily with ``model``: prefill the prompts in parts, then run one captured step per token of all.

    `why_not_capturable` must accept the model. The prefill uses transformers' own cache. Buffers grow to the largest
    batch so far and persist, as does the captured step of each shape. Call from one thread at a time.

    Args:
        model: A causal model of transformers on its device.
        ends: Ids of the tokens that end an answer.
        pad: Id of the token that fills a row behind its end token.
    """

    def __init__(self, model: Any, ends: list[int], pad: int) -> None:
        self.model, self.pad = model, pad
        self.ends = torch.tensor(ends, dtype=torch.long, device=model.device)
        self.penalty = model.generation_config.repetition_penalty or 1.0
        self.release()

    @contextmanager
    def endless(self) -> Iterator[None]:
        """Let no token end an answer during the body. The captured steps read the same tensor."""
        ends = self.ends.clone()
        self.ends.fill_(-1)
        try:
            yield
        finally:
            self.ends.copy_(ends)

    def release(self) -> None:
        """Free the buffers and the captured steps, for example after a batch ran out of memory."""
        self.room = 0  # capacity of ``flat`` in tokens (rows x length)
        self.flat: list[tuple[torch.Tensor, ...]] = []
        self.shapes: dict[tuple[int, int], Buffers] = {}
        self.pool: Any = None

    def generate(
        self, parts: Sequence[dict[str, Any]], max_tokens: int, place: Callable[[dict[str, Any]], dict[str, Any]] = dict
    ) -> torch.Tensor:
        """Generate the likeliest tokens (n, max_tokens) int64 after left-padded prompts, ``pad`` after an end token.

        Each part of the batch is prefilled alone, so that only the decoding buffers hold the keys and values of all.

        Args:
            parts: The inputs of consecutive rows, of any lengths.
            max_tokens: Tokens of each answer.
            place: Moves a part's inputs to the device.

        Raises:
            NotCapturable: The model caches more than the keys and values of all tokens.
        """
        n = sum(len(part["input_ids"]) for part in parts)
        prompt = max(part["input_ids"].shape[1] for part in parts)
        length = -(-(prompt + max_tokens) // TOKENS) * TOKENS
        buffers: Buffers | None = None
        firsts: list[torch.Tensor] = []
        for start, part in zip(_starts(parts), parts, strict=True):
            inputs = place(part)
            ids = inputs["input_ids"]
            positions = self.model._prepare_position_ids_for_generation(ids, dict(inputs))
            logits, cache = self._prefill(inputs, positions)
            seen = self._seen(ids, logits)
            firsts.append(self._likeliest(logits, seen))
            if max_tokens == 1:
                continue
            if buffers is None:
                buffers = self._buffers(_round_rows(n), length, cache, positions, seen)
                buffers.begin(prompt)
            buffers.fill(start, inputs["attention_mask"], positions, firsts[-1], cache, seen)
        if buffers is None:
            return torch.cat(firsts)[:, None]
        for step in range(1, max_tokens):
            if step % LOOK == 0 and bool(buffers.done.all()):
                break
            buffers.step()
        return buffers.tokens[:n, prompt : prompt + max_tokens].clone()

    def _prefill(self, inputs: dict[str, Any], positions: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Run the model on whole prompts; return the logits (n, vocabulary) of the next token, and the filled cache."""
        cache = DynamicCache(config=self.model.config)
        given = {name: value for name, value in inputs.items() if name != "input_ids"}
        ready = self.model.prepare_inputs_for_generation(
            inputs["input_ids"], past_key_values=cache, position_ids=positions, use_cache=True, logits_to_keep=1,
            is_first_iteration=True, **given,
        )  # fmt: skip
        logits = self.model(**ready, return_dict=True).logits[:, -1]
        if any(type(layer) is not DynamicLayer for layer in cache.layers):
            raise NotCapturable(f"{type(self.model).__name__} keeps more than the keys and values of all tokens")
        return logits, cache

    def _seen(self, ids: torch.Tensor, logits: torch.Tensor) -> torch.Tensor | None:
        """Mark each row's prompt tokens (n, vocabulary); None if the model has no repetition penalty."""
        return None if self.penalty == 1 else torch.zeros_like(logits, dtype=torch.bool).scatter_(1, ids, True)

    def _likeliest(self, logits: torch.Tensor, seen: torch.Tensor | None) -> torch.Tensor:
        """Return the token ids (n,) of the highest logits, after the repetition penalty on ``seen`` tokens."""
        logits = logits.float()
        if seen is not None:
            worse = torch.where(logits < 0, logits * self.penalty, logits / self.penalty)
            logits = torch.where(seen, worse, logits)
        return logits.argmax(-1)

    def next_tokens(self, buffers: Buffers) -> torch.Tensor:
        """Run the model on the last token of each row; return the next tokens (rows,)."""
        output = self.model(
            input_ids=buffers.tokens.index_select(1, buffers.place),
            position_ids=buffers.positions,
            attention_mask=buffers.visible(self.model),
            past_key_values=buffers.cache,
            use_cache=True,
            return_dict=True,
        )
        return self._likeliest(output.logits[:, -1], buffers.seen)

    def _buffers(self, rows: int, length: int, cache: Any, positions: torch.Tensor, seen: Any) -> Buffers:
        """Return the buffers for a shape; the keys and values of all shapes share the same memory."""
        if rows * length > self.room:
            self.release()
            self.room = rows * length
            self.flat = [
                tuple(each.new_zeros(self.room * each.shape[1] * each.shape[3]) for each in (layer.keys, layer.values))
                for layer in cache.layers
            ]
        if (rows, length) not in self.shapes:
            self.shapes[rows, length] = Buffers(self, rows, length, cache, positions, seen)
        return self.shapes[rows, length]


def _starts(parts: Sequence[dict[str, Any]]) -> list[int]:
    """Return the first row of each part."""
    return [0, *accumulate(len(part["input_ids"]) for part in parts)][:-1]


def _round_rows(n: int) -> int:
    """Round a row count up to a power of two or 1.5 times a power of two."""
    power = 1 << (n - 1).bit_length()
    return power * 3 // 4 if power >= 4 and n <= power * 3 // 4 else power
