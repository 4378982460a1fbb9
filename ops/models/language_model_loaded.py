"""Load a causal language model's weights and generate; the half of ops.models.language_model that imports torch."""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import torch
from transformers import GenerationConfig

from ops.models.causal_model import load_causal
from ops.models.device import dtype, text_batches
from ops.models.generation import Generation
from ops.models.greedy_answers import Answerer, answer_what_fits
from ops.models.kind_of_model import sees_pictures
from ops.models.model_digest import ModelError

# The longest prompt and answer together. A model's own context can be 131,072 tokens, whose keys and values take 3.8 GB
# a row in Qwen2.5-1.5B, while a caption, tags and a sentence are some 200.
CONTEXT = 8192
EXAMPLE = "hf:Qwen/Qwen2.5-1.5B-Instruct"
# Stands for the prompt when the chat template is filled, once a process.
PLACE = "[the prompt]"


def generate(spec: str, precision: str, batch_size: int, prompts: list[str], max_tokens: int) -> list[Generation]:
    """Generate an answer a prompt, in the order given. Raises ModelError when the model does not load or fit."""
    if not prompts:
        return []
    model = load(spec, precision)
    if max_tokens >= model.context:
        raise ModelError(
            f"model '{spec}': its context of {model.context} tokens has no room for a prompt and {max_tokens} tokens "
            "of answer; lower max_tokens, or use another model"
        )
    rows = [model.tokenize(prompt) for prompt in prompts]
    answers = [Generation("", 0, True, 0.0)] * len(rows)  # what a prompt without a token gets
    for row, tokens in enumerate(rows):
        if len(tokens) + max_tokens > model.context:
            answers[row] = Generation("", 0, False, 0.0, "too_large")
    asked = [row for row, tokens in enumerate(rows) if tokens and not answers[row].error]

    def ask(batch: list[int]) -> list[Generation]:
        return model.answer([rows[row] for row in batch], max_tokens)

    for batch in text_batches([len(rows[row]) for row in asked], batch_size):
        chosen = [asked[place] for place in batch]
        for row, answer in zip(chosen, answer_what_fits(ask, chosen), strict=True):
            answers[row] = answer
    return answers


class LoadedGenerator:
    """The weights and the tokenizer of a causal language model that writes, in this process."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
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

    def answer(self, rows: list[list[int]], max_tokens: int) -> list[Generation]:
        """Generate greedily for one batch of tokenised prompts, none empty."""
        started = time.perf_counter()
        longest = max(map(len, rows))
        pad = self.tokenizer.pad_token_id or 0  # masked
        ids = torch.tensor([[pad] * (longest - len(row)) + row for row in rows])
        mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
        inputs = {"input_ids": ids.to(self.model.device), "attention_mask": mask.to(self.model.device)}
        return self.answerer.read(self.answerer.generate(inputs, max_tokens)[:, longest:], started)


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


@cache
def load(spec: str, precision: str) -> LoadedGenerator:
    """Load the model once a process. Raises ModelError with the remedy."""
    kind = dtype(precision)
    if sees_pictures(spec):
        raise ModelError(f"model '{spec}' is a vision-language model, which is shown pictures; name one for text alone")
    model, tokenizer = load_causal(spec, kind, EXAMPLE)
    try:
        return LoadedGenerator(model, tokenizer)
    except Exception as error:  # a template is a program of the model's makers
        raise ModelError(f"model '{spec}': its chat template cannot be filled: {error}; mend or delete it") from error
