"""Try whether a model decodes over fixed buffers as transformers' ``generate`` does, on a few prompts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pairmill.ops.models.generate.packed_windows import windows_apart

# Tokens of each answer of a trial: as many as show a wrong position or mask, which turns the second token already.
TOKENS = 12
# Increase it when the decoder or the trial changes: cached outcomes are then found anew.
TRIAL_VERSION = 3
# An end token beyond every vocabulary. With None transformers takes the one of the model's generation_config.json.
NO_TOKEN = 2**31 - 1
Decode = Callable[[list[dict[str, Any]], int], torch.Tensor]
# A token may differ where its score lies this many rounding steps below the highest: other kernels round otherwise.
ROUNDING_STEPS = 8


def why_not_captured(model: Any, inputs: dict[str, Any], decode: Decode) -> str:
    """Return '' if ``decode`` gives the answers that ``model.generate`` gives, else where they differ.

    For ``generate`` a vision tower attends window by window, as transformers does.
    Answers are compared up to the first token that differs. There both must be as likely, to rounding: what follows are
    answers to other texts.

    Args:
        model: The model on its device.
        inputs: Placed inputs of a left-padded batch whose rows have unlike lengths.
        decode: Generate (n, tokens) from parts of a batch, to the last token whatever end token a row has.
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
