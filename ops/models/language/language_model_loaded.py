"""Load a causal language model's weights and generate; the half of ops.models.language.language_model that imports torch."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import GenerationConfig

from pairmill.ops.models.device.device import dtype
from pairmill.ops.models.device.loading import once
from pairmill.ops.models.generate.greedy_answers import (
    Answerer,
    answer_in_parts,
    n_tokens,
    pinned,
    similar_length_batches,
)
from pairmill.ops.models.generation import Generation
from pairmill.ops.models.language.causal_model import load_causal
from pairmill.ops.models.model_digest import ModelError
from pairmill.ops.models.vision_language.kind_of_model import is_vision_language

# The longest prompt and answer together. A model's own context can be 131,072 tokens, whose keys and values take 3.8 GB
# a row in Qwen2.5-1.5B, while a caption, tags and a sentence are some 200.
CONTEXT = 8192
EXAMPLE = "hf:Qwen/Qwen2.5-1.5B-Instruct"
# Stands for the prompt when the chat template is filled, once a process.
PLACE = "[the prompt]"


@dataclass(frozen=True)
class PreparedTexts:
    """What a language model takes of one batch, on the CPU: each row's tokens, and tensors of those that have any."""

    rows: list[list[int]]
    inputs: dict[str, torch.Tensor]
    seconds: float


class LoadedGenerator:
    """The weights and the tokenizer of a causal language model that writes, in this process."""

    def __init__(self, spec: str, model: Any, tokenizer: Any) -> None:
        self.spec = spec
        self.answerer = Answerer(model, tokenizer)
        # Made for chats: Qwen2.5's penalises by 1.1 each word that the prompt has, and a fused text is to keep those.
        model.generation_config = GenerationConfig()
        self.model, self.tokenizer = model, tokenizer
        self.context = min(getattr(model.config, "max_position_embeddings", None) or CONTEXT, CONTEXT)
        named = (number for number, token in tokenizer.added_tokens_decoder.items() if token.special)
        self.special = {*tokenizer.all_special_ids, *named}
        self.before, self.after = _turn(tokenizer)
        self.tokens_before, self.tokens_after = self._encode(self.before), self._encode(self.after)

    def tokenize(self, prompt: str) -> list[int]:
        """Return the tokens of the prompt in the model's chat template, in which the prompt makes no special token."""
        if not self.before and not self.after:
            return self.tokenizer(prompt, split_special_tokens=True, verbose=False)["input_ids"]
        # As one text, because a tokenizer may join the prompt's ends with what stands beside them.
        whole = self._encode(f"{self.before}{prompt.strip()}{self.after}")
        if self._n_special(whole) == self._n_special(self.tokens_before) + self._n_special(self.tokens_after):
            return whole
        return [*self.tokens_before, *self._encode(prompt.strip(), split_special_tokens=True), *self.tokens_after]

    def _encode(self, text: str, **how: bool) -> list[int]:
        # The template writes a start token itself where the model wants one.
        return self.tokenizer(text, add_special_tokens=False, verbose=False, **how)["input_ids"]

    def _n_special(self, tokens: list[int]) -> int:
        return sum(token in self.special for token in tokens)

    def batches(self, prompts: list[str], most: int) -> list[list[int]]:
        """Group row numbers into batches of like length in tokens."""
        return similar_length_batches([len(self.tokenize(prompt)) for prompt in prompts], most)

    def prepare(self, prompts: list[str]) -> PreparedTexts:
        """Make on the CPU what the model takes, pinned where there is a GPU."""
        started = time.perf_counter()
        rows = [self.tokenize(prompt) for prompt in prompts]
        inputs = self._inputs([row for row in rows if row])
        return PreparedTexts(rows, inputs, time.perf_counter() - started)

    def infer(self, prepared: PreparedTexts, max_tokens: int) -> list[Generation]:
        """Generate an answer a row, in halves when the device runs out of memory; one that leaves no room for
        ``max_tokens`` in the context gets an error."""
        if max_tokens >= self.context:
            raise ModelError(
                f"model '{self.spec}': its context of {self.context} tokens has no room for a prompt and {max_tokens} "
                "tokens of answer; lower max_tokens, or use another model"
            )
        fitting = [row for row in prepared.rows if row and len(row) + max_tokens <= self.context]
        if len(fitting) < sum(map(bool, prepared.rows)):
            prepared = replace(prepared, inputs=self._inputs(fitting))
        found = iter(self._infer(fitting, prepared, max_tokens))
        too_large = Generation("", 0, "length", 0.0, "too_large", f"no room for {max_tokens} tokens behind it")
        nothing = Generation("", 0, "stop", 0.0)
        return [
            nothing if not row else too_large if len(row) + max_tokens > self.context else next(found)
            for row in prepared.rows
        ]

    def _infer(self, rows: list[list[int]], prepared: PreparedTexts, max_tokens: int) -> list[Generation]:
        def part(start: int, stop: int) -> PreparedTexts:
            return PreparedTexts(rows[start:stop], self._inputs(rows[start:stop]), 0.0)

        def ask(ready: PreparedTexts) -> list[Generation]:
            return self.answer(ready, max_tokens)

        return answer_in_parts(prepared, len(rows), ask, part) if rows else []

    def answer(self, prepared: PreparedTexts, max_tokens: int) -> list[Generation]:
        """Generate greedily for one batch that fits."""
        started = time.perf_counter()
        generated = self.answerer.generate(self.answerer.placed(prepared.inputs), max_tokens).cpu()
        seconds = prepared.seconds + time.perf_counter() - started
        return self.answerer.read(generated, self.tokenizer, n_tokens(prepared.inputs), seconds)

    def _inputs(self, rows: list[list[int]]) -> dict[str, torch.Tensor]:
        longest = max(map(len, rows), default=0)
        pad = self.tokenizer.pad_token_id or 0  # masked
        ids = torch.tensor([[pad] * (longest - len(row)) + row for row in rows])
        mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
        return pinned({"input_ids": ids, "attention_mask": mask})


def _turn(tokenizer: Any) -> tuple[str, str]:
    """Return what the chat template writes before and after a user's only turn: nothing without a template."""
    if not tokenizer.chat_template:
        return "", ""
    turn = [{"role": "user", "content": PLACE}]
    before, place, after = tokenizer.apply_chat_template(turn, add_generation_prompt=True, tokenize=False).partition(
        PLACE
    )
    if not place:
        raise ValueError("its chat template leaves the user's turn out")
    return before, after


@once
def load(spec: str, precision: str) -> LoadedGenerator:
    """Load the model once a process. Raises ModelError with the remedy."""
    kind = dtype(precision)
    if is_vision_language(spec):
        raise ModelError(f"model '{spec}' is a vision-language model, which is shown pictures; name one for text alone")
    model, tokenizer = load_causal(spec, kind, EXAMPLE)
    try:
        return LoadedGenerator(spec, model, tokenizer)
    except Exception as error:  # a template is a program of the model's makers
        raise ModelError(f"model '{spec}': its chat template cannot be filled: {error}; mend or delete it") from error
