"""Define Generation, one answer of a generative model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Generation:
    """One answer. ``n_tokens`` counts tokens before the end token; ``finished``: not cut by ``max_tokens``;
    ``seconds`` is the batch's time over its rows; ``error`` is '', or a quarantine reason ('out_of_memory': this item
    alone does not fit the device) with an empty ``text``."""

    text: str
    n_tokens: int
    finished: bool
    seconds: float
    error: str = ""
