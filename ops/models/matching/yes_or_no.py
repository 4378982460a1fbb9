"""Ask a vision-language model whether a picture shows a text, and read the probability of "yes" off its next token.

This is VQAScore (Lin et al. 2024, arXiv 2404.01291), with two changes: the score is the share of "yes" in "yes or no",
and lower-case and capitalised answers count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pairmill.ops.models.device.device import text_batches
from pairmill.ops.models.device.row_batches import RowBatches
from pairmill.ops.models.model_digest import ModelError
from pairmill.ops.models.vision_language.vlm_loaded import LoadedVlm

QUESTION = 'Does this figure show "{text}"? Please answer yes or no.'


@dataclass(frozen=True)
class Questions:
    """Pairs of a picture and its question, with the model's inputs; a part of them has its inputs still to be made."""

    pictures: list[np.ndarray | None]
    prompts: list[str]
    inputs: dict[str, Any] | None = None

    def __len__(self) -> int:
        return len(self.prompts)

    def __getitem__(self, at: slice) -> Questions:
        whole = range(len(self))[at] == range(len(self))
        return self if whole else Questions(self.pictures[at], self.prompts[at])


class AskedMatcher:
    """A vision-language model that answers QUESTION, in this process."""

    def __init__(self, vlm: LoadedVlm, spec: str) -> None:
        if vlm.model.config.is_encoder_decoder:
            raise ModelError(f"model '{spec}': its answers have an encoder of their own; name one that only decodes")
        self.vlm = vlm
        self.yes, self.no = answer_tokens(getattr(vlm.processor, "tokenizer", vlm.processor), spec)

    def prepare(self, pictures: list[np.ndarray], texts: list[str], batch_size: int) -> RowBatches:
        """Make the inputs of questions of similar length, batch by batch, on the CPU."""
        prompts = [QUESTION.format(text=text) for text in texts]
        lengths = self.vlm.lengths(prompts, [(picture.shape[0], picture.shape[1]) for picture in pictures])
        return RowBatches(
            len(prompts),
            [
                (rows, self._asked(Questions([pictures[row] for row in rows], [prompts[row] for row in rows])))
                for rows in text_batches(lengths, batch_size)
            ],
        )

    def probabilities(self, asked: Questions) -> torch.Tensor:
        """Compute the share of "yes" in the probability of "yes" or "no", float64 (n,) on the device."""
        inputs = asked.inputs if asked.inputs is not None else self._asked(asked).inputs
        assert inputs is not None
        return yes_share(self.vlm.next_logits(inputs), self.yes, self.no)

    def _asked(self, asked: Questions) -> Questions:
        """Return the questions with the model's inputs."""
        inputs = self.vlm.padded_together(asked.pictures, asked.prompts)
        return Questions(asked.pictures, asked.prompts, inputs)


def yes_share(logits: torch.Tensor, yes: list[int], no: list[int]) -> torch.Tensor:
    """Return the share of ``yes`` in the probability of these tokens, float64 (n,), from logits (n, vocabulary)."""
    each = logits.double()
    return (each[:, yes].logsumexp(-1) - each[:, no].logsumexp(-1)).sigmoid()


def answer_tokens(tokenizer: Any, spec: str = "") -> tuple[list[int], list[int]]:
    """Return the first tokens of "yes" and of "no": in lower case or capitalised, with or without a space before.

    Raises ModelError if the tokenizer begins both answers by the same tokens.
    """
    yes, no = (
        {tokenizer.encode(f"{space}{form}", add_special_tokens=False)[0] for space in ("", " ") for form in forms}
        for forms in (("yes", "Yes"), ("no", "No"))
    )  # fmt: skip
    if not yes - no or not no - yes:
        raise ModelError(f"model '{spec}': its tokenizer begins 'yes' and 'no' by one token; name another model")
    return sorted(yes - no), sorted(no - yes)
