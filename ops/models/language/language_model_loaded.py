"""Load a causal language model's weights and generate; the part of language_model.py that imports torch."""

import time
from dataclasses import replace
from typing import Any

import torch
from transformers.generation.configuration_utils import GenerationConfig

from pairmill.ops.models.device.device import dtype, once
from pairmill.ops.models.generate.greedy_answers import EXAMPLE_PROMPTS, Answerer, RunningAnswers
from pairmill.ops.models.generate.loaded_model import LoadedModel, Prepared
from pairmill.ops.models.generation import Generation
from pairmill.ops.models.language.causal_model import load_causal
from pairmill.ops.models.model_digest import ModelError, is_vision_language

# Maximum tokens of prompt and answer together. A model's own context can be 131,072 tokens, whose keys and values take
# 3.8 GB a row in Qwen2.5-1.5B, while a caption, tags and a sentence are some 200 tokens.
CONTEXT = 8192
EXAMPLE = "hf:Qwen/Qwen2.5-1.5B-Instruct"
# Placeholder for the prompt when the chat template is rendered, once per process.
PLACE = "[the prompt]"


class LoadedGenerator(LoadedModel):
    """Weights and tokenizer of a causal language model that generates; its rows are token ids, without padding."""

    def __init__(self, spec: str, model: Any, tokenizer: Any) -> None:
        self.spec = spec
        self.answerer = Answerer(model, tokenizer, spec, lambda: [self.example()])
        # Drop the model's own settings, which are made for chats: Qwen2.5's penalise each word of the prompt by 1.1,
        # and a fused text must repeat those words.
        model.generation_config = GenerationConfig()
        self.model, self.tokenizer = model, tokenizer
        self.context = min(getattr(model.config, "max_position_embeddings", None) or CONTEXT, CONTEXT)
        named = (number for number, token in tokenizer.added_tokens_decoder.items() if token.special)
        self.special = {*tokenizer.all_special_ids, *named}
        self.before, self.after = _turn(tokenizer)
        self.tokens_before, self.tokens_after = self._encode(self.before), self._encode(self.after)

    def tokenize(self, prompt: str) -> list[int]:
        """Return the token ids of the prompt in the model's chat template.

        No text of the prompt becomes a special token.
        """
        if not self.before and not self.after:
            return self.tokenizer(prompt, split_special_tokens=True, verbose=False)["input_ids"]
        # Encode all as one text first, because a tokenizer may merge the prompt's ends with the template's text.
        whole = self._encode(f"{self.before}{prompt.strip()}{self.after}")
        if self._n_special(whole) == self._n_special(self.tokens_before) + self._n_special(self.tokens_after):
            return whole
        return [*self.tokens_before, *self._encode(prompt.strip(), split_special_tokens=True), *self.tokens_after]

    def _encode(self, text: str, **how: bool) -> list[int]:
        """Encode a text without adding special tokens."""
        # The template already contains the start token if the model needs one.
        return self.tokenizer(text, add_special_tokens=False, verbose=False, **how)["input_ids"]

    def _n_special(self, tokens: list[int]) -> int:
        """Count the special tokens."""
        return sum(token in self.special for token in tokens)

    def own_tokenizer(self) -> Any:
        """Return the tokenizer, which any thread may use to decode."""
        return self.tokenizer

    def batches(self, prompts: list[str], most: int, room: int = 0) -> list[list[int]]:
        """Group prompts into batches of row numbers: at most ``most`` rows and ``room`` prompt tokens (0: any)."""
        return self.answerer.batches(self.lengths(prompts), most, room)

    def lengths(self, prompts: list[str], sizes: object = None) -> list[int]:
        """Return the number of tokens of each prompt; ``sizes`` is ignored."""
        return [len(self.tokenize(prompt)) for prompt in prompts]

    def prompt_tokens(self, rows: list[list[int]]) -> list[int]:
        """Return the number of tokens of each row."""
        return [len(row) for row in rows]

    def example(self) -> dict[str, torch.Tensor]:
        """Build a padded batch of a few prompts of different lengths, for the trial of captured decoding."""
        return self.padded([self.tokenize(prompt) for prompt in EXAMPLE_PROMPTS])

    def prepare(self, prompts: list[str]) -> Prepared:
        """Tokenize prompts, and build the inputs of the prompts that have tokens."""
        started = time.perf_counter()
        rows = [self.tokenize(prompt) for prompt in prompts]
        ready = self.prepare_rows([row for row in rows if row])
        return replace(ready, rows=rows, seconds=time.perf_counter() - started)

    def infer(self, prepared: Prepared, max_tokens: int, slots: int = 0) -> list[Generation] | RunningAnswers:
        """Generate one answer per row as `LoadedModel.infer`; rows without tokens or beyond the context are not run.

        Raises ModelError if ``max_tokens`` fills the whole context.
        """
        if max_tokens >= self.context:
            raise ModelError(
                f"model '{self.spec}': its context of {self.context} tokens has no room for a prompt and {max_tokens} "
                "tokens of answer; lower max_tokens, or use another model"
            )
        rows = prepared.rows
        fitting = [row for row in rows if row and len(row) + max_tokens <= self.context]

        def complete(found: list[Generation]) -> list[Generation]:
            return self._with_unfit(rows, found, max_tokens)

        if not fitting:
            return complete([])
        all_fit = len(fitting) == sum(map(bool, rows))
        ready = replace(prepared, rows=fitting) if all_fit else self.prepare_rows(fitting)
        return super().infer(ready, max_tokens, slots, complete)

    def _with_unfit(self, rows: list[list[int]], found: list[Generation], max_tokens: int) -> list[Generation]:
        """Add the answers of the rows that have no token, or no room for ``max_tokens``, to the others' ``found``."""
        answers = iter(found)
        too_large = Generation("", 0, "length", 0.0, "too_large", f"no room for {max_tokens} tokens behind it")
        nothing = Generation("", 0, "stop", 0.0)
        return [
            nothing if not row else too_large if len(row) + max_tokens > self.context else next(answers) for row in rows
        ]

    def padded(self, rows: list[list[int]]) -> dict[str, torch.Tensor]:
        """Pad rows on the left into tensors (n, longest): ``input_ids`` and ``attention_mask``."""
        longest = max(map(len, rows), default=0)
        pad = self.tokenizer.pad_token_id or 0  # masked
        ids = torch.tensor([[pad] * (longest - len(row)) + row for row in rows])
        mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
        return {"input_ids": ids, "attention_mask": mask}


def _turn(tokenizer: Any) -> tuple[str, str]:
    """Return the template's (before, after) of a user's turn, ('', '') without one. ValueError if it omits it."""
    if not tokenizer.chat_template:
        return "", ""
    turn = [{"role": "user", "content": PLACE}]
    rendered = tokenizer.apply_chat_template(turn, add_generation_prompt=True, tokenize=False)
    before, place, after = rendered.partition(PLACE)
    if not place:
        raise ValueError("its chat template leaves the user's turn out")
    return before, after


@once
def load(spec: str, precision: str) -> LoadedGenerator:
    """Load the model once per process. Raises ModelError with the remedy if it is missing or of another kind."""
    kind = dtype(precision)
    if is_vision_language(spec):
        raise ModelError(f"model '{spec}' is a vision-language model, which is shown pictures; name one for text alone")
    model, tokenizer = load_causal(spec, kind, EXAMPLE)
    try:
        return LoadedGenerator(spec, model, tokenizer)
    except Exception as error:  # a chat template is a program that may fail
        raise ModelError(f"model '{spec}': its chat template cannot be filled: {error}; mend or delete it") from error
