"""Define Generation, one answer of a generative model, and the shape that every backend has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np


@dataclass(frozen=True)
class Generation:
    """One answer. ``n_tokens`` counts its tokens (without the end token where the backend counts them itself).

    ``finish`` says why it ends: 'stop' (by itself), 'length' (cut by ``max_tokens``), 'content_filter', 'refusal', or
    what a server says. ``seconds`` is the batch's time over its rows, or a request's own. ``error`` is '', or a
    quarantine reason ('out_of_memory': this item alone does not fit the device), and ``detail`` what is known of it;
    ``text`` is then empty, or the beginning of one that was too long. ``prompt_tokens`` is what was read, the picture
    included, 0 where that is not told. ``discarded_tokens`` are those read and made for answers that were thrown away,
    ``retries`` how many these were. ``unbelieved_prompt_tokens`` and ``unbelieved_tokens`` are those that a server
    reports beyond what can be.
    """

    text: str
    n_tokens: int
    finish: str
    seconds: float
    error: str = ""
    detail: str = ""
    prompt_tokens: int = 0
    discarded_tokens: int = 0
    retries: int = 0
    unbelieved_prompt_tokens: int = 0
    unbelieved_tokens: int = 0

    @property
    def finished(self) -> bool:
        """Whether it ends by itself, not cut by ``max_tokens``."""
        return self.finish != "length"


class Answering(Protocol):
    """A model that answers prompts about pictures, whatever runs it: pictures and prompts in, `Generation`s out.

    A frozen dataclass that is pickled to workers and loads on first use. ``max_in_flight`` is 0 for a model on this
    process's device, which one thread alone may talk to; else how many batches may be under way at once.
    """

    max_in_flight: ClassVar[int]

    @property
    def batch_size(self) -> int: ...

    def load(self) -> None:
        """Load the weights, or reach the server. Raises ModelError with the remedy."""
        ...

    def fitted(self, prompt: str, side: int, max_tokens: int) -> Answering:
        """Return this model with the batch size that suits pictures and prompts like these."""
        ...

    def batches(self, prompts: list[str], sizes: list[tuple[int, int] | None] | None = None) -> list[list[int]]:
        """Group row numbers into batches."""
        ...

    def prepare(self, pictures: list[np.ndarray | None], prompts: list[str]) -> Any:
        """Make on the CPU what the model takes of one batch. Pictures are (h, w, 3) uint8 RGB, None for text alone."""
        ...

    def infer(self, prepared: Any, max_tokens: int) -> Any:
        """Have the model begin with a prepared batch."""
        ...

    def fetch(self, running: Any) -> list[Generation]:
        """Wait for the answers of a batch, in its order."""
        ...
