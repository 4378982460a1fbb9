"""Decode greedily over buffers of fixed shape, so that a GPU replays one captured step for each token."""

from __future__ import annotations

from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from pairmill.ops.models.generate.decoding_buffers import Buffers

# Prompt and answer are rounded up to so many tokens, rows to powers of two and one and a half of them: few shapes.
TOKENS = 64
# Answers that have ended are looked for so often: each look waits for the device.
LOOK = 8
# What of a model's own settings changes the likeliest token, beside the repetition penalty.
OTHER_RULES = (
    "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "encoder_repetition_penalty", "min_length",
    "min_new_tokens", "bad_words_ids", "suppress_tokens", "begin_suppress_tokens", "forced_bos_token_id",
    "forced_eos_token_id", "exponential_decay_length_penalty", "sequence_bias", "guidance_scale", "watermarking_config",
    "remove_invalid_values", "prompt_lookup_num_tokens",
)  # fmt: skip


class NotCapturable(Exception):
    """Raised when a model cannot decode over fixed buffers."""


def why_not_capturable(model: Any) -> str:
    """Return '' where a model of transformers can decode over fixed buffers, else why not."""
    if model.config.is_encoder_decoder or not getattr(model, "_can_compile_fullgraph", False):
        return f"transformers compiles no {type(model).__name__}"
    rules = [name for name in OTHER_RULES if getattr(model.generation_config, name, None) not in (None, 0, 1, 1.0, [])]
    return f"its generation_config.json has {rules[0]}" if rules else ""


class Decoder:
    """Generate with ``model``, which `why_not_capturable`: the prompts at once with transformers' own cache, then one fixed step a
    token. The buffers stay, grown to the largest batch seen, and each shape's captured step with them.

    Called by one thread at a time. ``ends``: the tokens that end an answer; ``pad`` fills what stands behind them.
    """

    def __init__(self, model: Any, ends: list[int], pad: int) -> None:
        self.model, self.pad = model, pad
        self.ends = torch.tensor(ends, dtype=torch.long, device=model.device)
        self.penalty = model.generation_config.repetition_penalty or 1.0
        self.release()

    def release(self) -> None:
        """Let the buffers and the captured steps go, as after a batch that did not fit."""
        self.room = 0  # tokens that the memory below holds
        self.flat: list[tuple[torch.Tensor, ...]] = []
        self.shapes: dict[tuple[int, int], Buffers] = {}
        self.pool: Any = None

    def generate(self, inputs: dict[str, Any], max_tokens: int) -> torch.Tensor:
        """Generate the likeliest tokens (n, max_tokens) int64 behind left-padded prompts, ``pad`` behind an end token.

        Raises NotCapturable for a model whose cache is more than keys and values of all tokens.
        """
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        positions = self.model._prepare_position_ids_for_generation(ids, dict(inputs))
        logits, cache = self._prefill(inputs, positions)
        seen = self._seen(ids, logits)
        first = self._likeliest(logits, seen)
        if max_tokens == 1:
            return first[:, None]
        n, prompt = ids.shape
        buffers = self._buffers(_round_rows(n), -(-(prompt + max_tokens) // TOKENS) * TOKENS, cache, positions, seen)
        buffers.fill(mask, positions, first, cache, seen)
        for step in range(1, max_tokens):
            if step % LOOK == 0 and bool(buffers.done.all()):
                break
            buffers.step()
        return buffers.tokens[:n, prompt : prompt + max_tokens].clone()

    def _prefill(self, inputs: dict[str, Any], positions: torch.Tensor) -> tuple[torch.Tensor, Any]:
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
        """Mark the words of each prompt, where the model penalises to repeat them: (n, vocabulary)."""
        return None if self.penalty == 1 else torch.zeros_like(logits, dtype=torch.bool).scatter_(1, ids, True)

    def _likeliest(self, logits: torch.Tensor, seen: torch.Tensor | None) -> torch.Tensor:
        logits = logits.float()
        if seen is not None:
            worse = torch.where(logits < 0, logits * self.penalty, logits / self.penalty)
            logits = torch.where(seen, worse, logits)
        return logits.argmax(-1)

    def next_tokens(self, buffers: Buffers) -> torch.Tensor:
        """Run the model on each row's last token; return the next (rows,)."""
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
        """Return the buffers of a shape; all shapes' keys and values lie in the same memory."""
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


def _round_rows(n: int) -> int:
    power = 1 << (n - 1).bit_length()
    return power * 3 // 4 if power >= 4 and n <= power * 3 // 4 else power
