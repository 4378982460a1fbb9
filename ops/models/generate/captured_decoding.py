"""Decode greedily over buffers of fixed shape, so that a GPU replays one captured CUDA graph per token."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from pairmill.ops.models.generate.decoding_buffers import Buffers, Prefilled, Window, window_of

# Check every 8 steps whether all answers have ended, because each check waits for the device.
LOOK = 8
# Share of the card's memory that is left for prefills: 10 GB of 80, where 16,384 tokens of a 17B model take 6.
PREFILL_SHARE = 0.125
# Settings of a generation config that change the likeliest token, besides the repetition penalty.
OTHER_RULES = (
    "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "encoder_repetition_penalty", "min_length",
    "min_new_tokens", "bad_words_ids", "suppress_tokens", "begin_suppress_tokens", "forced_bos_token_id",
    "forced_eos_token_id", "exponential_decay_length_penalty", "sequence_bias", "guidance_scale", "watermarking_config",
    "remove_invalid_values", "prompt_lookup_num_tokens",
)  # fmt: skip


Place = Callable[[dict[str, Any]], dict[str, Any]]


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
        self.shapes: dict[tuple[int, int, int], Buffers] = {}
        self.pool: Any = None

    def generate(self, parts: Sequence[dict[str, Any]], max_tokens: int, place: Place = dict) -> torch.Tensor:
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
        buffers: Buffers | None = None
        firsts: list[torch.Tensor] = []
        for start, part in zip(_starts(parts), parts, strict=True):
            new = self.prefill(place(part))
            firsts.append(new.first)
            if max_tokens == 1:
                continue
            if buffers is None:
                buffers = self.buffers(_round_rows(n), prompt, max_tokens, new)
                buffers.begin()
            buffers.fill(buffers.rows[start : start + len(new.first)], new, max_tokens)
        if buffers is None:
            return torch.cat(firsts)[:, None]
        for step in range(1, max_tokens):
            if step % LOOK == 0 and bool(buffers.done.all()):
                break
            buffers.step(prompt + step + 1)
        return buffers.said[:n, :max_tokens].clone()

    def prefill(self, inputs: dict[str, Any]) -> Prefilled:
        """Run the model on whole prompts, with transformers' own cache, and choose the first token of each answer."""
        ids, cache = inputs["input_ids"], DynamicCache(config=self.model.config)
        positions = self.model._prepare_position_ids_for_generation(ids, dict(inputs))
        given = {name: value for name, value in inputs.items() if name != "input_ids"}
        ready = self.model.prepare_inputs_for_generation(
            ids, past_key_values=cache, position_ids=positions, use_cache=True, logits_to_keep=1,
            is_first_iteration=True, **given,
        )  # fmt: skip
        logits = self.model(**ready, return_dict=True).logits[:, -1]
        if why := _why_not_fixed(cache.layers, ids.shape[1]):
            raise NotCapturable(f"{type(self.model).__name__} {why}")
        seen = self._seen(ids, inputs["attention_mask"], logits)
        return Prefilled(inputs["attention_mask"], positions, self._likeliest(logits, seen), cache.layers, seen)

    def _seen(self, ids: torch.Tensor, mask: torch.Tensor, logits: torch.Tensor) -> torch.Tensor | None:
        """Mark each row's prompt tokens (n, vocabulary); None if the model has no repetition penalty.

        Padding is not marked, as ``generate`` does: it may be the end token, and a row would depend on its batch.
        """
        if self.penalty == 1:
            return None
        return torch.zeros_like(logits, dtype=torch.int8).scatter_reduce_(1, ids, mask.to(torch.int8), "amax").bool()

    def _likeliest(self, logits: torch.Tensor, seen: torch.Tensor | None) -> torch.Tensor:
        """Return the token ids (n,) of the highest logits, after the repetition penalty on ``seen`` tokens."""
        logits = logits.float()
        if seen is not None:
            worse = torch.where(logits < 0, logits * self.penalty, logits / self.penalty)
            logits = torch.where(seen, worse, logits)
        return logits.argmax(-1)

    def next_tokens(self, buffers: Buffers, window: Window) -> torch.Tensor:
        """Run the model on the last token of each row; return the next tokens (rows,)."""
        output = self.model(
            input_ids=buffers.last,
            position_ids=buffers.positions,
            attention_mask=self._visible(window.keep),
            past_key_values=window.cache,
            use_cache=True,
            return_dict=True,
        )
        return self._likeliest(output.logits[:, -1], buffers.seen)

    def _visible(self, keep: torch.Tensor) -> torch.Tensor:
        """Return the attention mask (rows, 1, 1, length): boolean, or additive for a model with eager attention."""
        if self.model.config.get_text_config(decoder=True)._attn_implementation != "eager":
            return keep
        return torch.zeros_like(keep, dtype=self.model.dtype).masked_fill(~keep, torch.finfo(self.model.dtype).min)

    def buffers(self, rows: int, prompt: int, max_tokens: int, like: Prefilled) -> Buffers:
        """Return the buffers of ``rows`` prompts and answers of these lengths; all buffers share the same memory."""
        length, answer = window_of(prompt + max_tokens), window_of(max_tokens)
        if rows * length > self.room:
            self.release()
            self.room = rows * length
            self.flat = [
                tuple(each.new_zeros(self.room * each.shape[1] * each.shape[3]) for each in (layer.keys, layer.values))
                for layer in like.layers
            ]
        shape = (rows, length, answer)
        if shape not in self.shapes:
            self.shapes[shape] = Buffers(self, *shape, like)
        return self.shapes[shape]

    def rows_that_fit(self, rows: int, prompt: int, max_tokens: int, like: Prefilled) -> int:
        """Return how many rows of at most ``rows`` the device has memory for, beside that of later prefills."""
        if self.model.device.type != "cuda":
            return rows
        device = self.model.device
        free, total = torch.cuda.mem_get_info(device)
        allocated = torch.cuda.memory_allocated(device)
        share = int(torch.cuda.get_per_process_memory_fraction(device) * total)
        left = min(free + torch.cuda.memory_reserved(device), share) - allocated
        room = left + sum(each.nbytes for layer in self.flat for each in layer) - int(PREFILL_SHARE * share)
        token = sum(each[0, :, 0].nbytes for layer in like.layers for each in (layer.keys, layer.values))
        return max(1, min(rows, room // (token * window_of(prompt + max_tokens))))


def _why_not_fixed(layers: Sequence[Any], length: int) -> str:
    """Return '' if each layer of a cache holds the keys and values of ``length`` tokens, else what it holds."""
    for layer in layers:
        if type(layer) is not DynamicLayer:
            return f"keeps more than the keys and values of all tokens: it has a {type(layer).__name__}"
        if layer.keys is None or layer.keys.shape[2] != length:
            return "keeps keys of other things than the prompt's tokens, as cross-attention to pictures does"
    return ""


def _starts(parts: Sequence[dict[str, Any]]) -> list[int]:
    """Return the first row of each part."""
    return [0, *accumulate(len(part["input_ids"]) for part in parts)][:-1]


def _round_rows(n: int) -> int:
    """Round a row count up to a power of two or 1.5 times a power of two."""
    power = 1 << (n - 1).bit_length()
    return power * 3 // 4 if power >= 4 and n <= power * 3 // 4 else power
