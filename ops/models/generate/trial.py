"""Test on a few prompts whether decoding over fixed buffers gives the answers of transformers' ``generate``."""

from collections.abc import Callable
from typing import Any

import torch

from pairmill.ops.models.generate.quick_parts import windows_apart

# Tokens of each answer of a trial: as many as show a wrong position or mask, which turns the second token already.
TOKENS = 12
# Increase it when the decoder or the trial changes: cached outcomes are then found anew.
TRIAL_VERSION = 5
# An end token beyond every vocabulary. With None transformers takes the one of the model's generation_config.json.
NO_TOKEN = 2**31 - 1
Decode = Callable[[list[dict[str, Any]], int], torch.Tensor]
# Settings of a generation config that change the likeliest token, besides the repetition penalty.
OTHER_RULES = (
    "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "encoder_repetition_penalty", "min_length",
    "min_new_tokens", "bad_words_ids", "suppress_tokens", "begin_suppress_tokens", "forced_bos_token_id",
    "forced_eos_token_id", "exponential_decay_length_penalty", "sequence_bias", "guidance_scale", "watermarking_config",
    "remove_invalid_values", "prompt_lookup_num_tokens",
)  # fmt: skip
# A token may differ where its score lies this many rounding steps below the highest: other kernels round otherwise.
ROUNDING_STEPS = 8


def why_not_capturable(model: Any) -> str:
    """Return why a transformers model cannot be decoded over fixed buffers, '' if its kind can.

    Whether the answers are right, only a trial shows (`why_not_captured`).
    """
    if model.config.is_encoder_decoder:
        return f"{type(model).__name__} is an encoder and a decoder"
    if type(model).generate.__qualname__ != "GenerationMixin.generate":  # BLIP, BLIP-2: it wraps a language model
        return f"{type(model).__name__} has a generate method of its own"
    rules = [name for name in OTHER_RULES if getattr(model.generation_config, name, None) not in (None, 0, 1, 1.0, [])]
    return f"its generation_config.json has {rules[0]}" if rules else ""


def why_not_captured(model: Any, inputs: dict[str, Any], decode: Decode) -> str:
    """Return where the answers of ``decode`` differ from those of ``model.generate``, '' if they agree.

    ``inputs`` are those of a left-padded batch on the device with rows of different lengths. ``decode`` generates (n,
    tokens) from parts of a batch, to the last token whatever end token a row has. For ``generate`` a vision tower
    attends window by window, as transformers does. Answers are compared up to the first token that differs. At that
    token both must be equally likely, to rounding; later tokens continue different texts.
    """
    with windows_apart(model):
        told = model.generate(
            **inputs, max_new_tokens=TOKENS, do_sample=False, num_beams=1, eos_token_id=NO_TOKEN, pad_token_id=0,
            output_scores=True, return_dict_in_generate=True,
        )  # fmt: skip
    expected, found = told.sequences[:, -TOKENS:].tolist(), decode([inputs], TOKENS).tolist()
    for row, (theirs, ours) in enumerate(zip(expected, found, strict=True)):
        at = next((n for n in range(TOKENS) if theirs[n] != ours[n]), None)
        if at is not None and not _is_near(told.scores[at][row].float(), theirs[at], ours[at], model.dtype):
            return f"on a trial, {type(model).__name__} gave another token {at + 1} than generate in row {row + 1}"
    return ""


def _is_near(scores: torch.Tensor, first: int, second: int, kind: torch.dtype) -> bool:
    """Return whether two tokens have the same score to rounding."""
    step = torch.finfo(kind).eps * max(1.0, float(scores[first].abs()))
    return float(scores[first] - scores[second]) <= ROUNDING_STEPS * step
