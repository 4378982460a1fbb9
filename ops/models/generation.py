"""One answer of a generating model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Generation:
    """One answer. ``n_tokens`` counts what was generated before the end token; ``finished`` is False when
    ``max_tokens`` came first; ``seconds`` is the batch's time over its rows; ``error`` is '' or a reason for the
    quarantine ('out_of_memory': this item alone does not fit the device), and then ``text`` is ''."""

    text: str
    n_tokens: int
    finished: bool
    seconds: float
    error: str = ""
