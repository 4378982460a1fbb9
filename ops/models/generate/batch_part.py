"""Define BatchPart, the prepared inputs of some rows of a batch, and count its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class BatchPart:
    """The inputs of some rows of a batch, on the CPU, padded to the longest of them.

    Attributes:
        rows: The numbers of the rows in the batch.
        inputs: The model's inputs.
    """

    rows: list[int]
    inputs: dict[str, Any]


def n_tokens(parts: Sequence[BatchPart]) -> list[int]:
    """Count the tokens of each row of a prepared batch, without padding."""
    counts: dict[int, int] = {}
    for part in parts:
        counts.update(zip(part.rows, part.inputs["attention_mask"].sum(1).tolist(), strict=True))
    return [counts[row] for row in range(len(counts))]
