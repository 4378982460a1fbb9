"""What an op reads and returns: columns of equal length by name."""

from __future__ import annotations

from typing import Any, TypeAlias

# A column is a list (bytes, text, arrays of different shapes, faults) or a numpy array whose first axis is the item.
Batch: TypeAlias = dict[str, Any]


def length(batch: Batch) -> int:
    """Number of items of a batch; ValueError when its columns differ, which is a bug of the op that made it."""
    lengths = {name: len(column) for name, column in batch.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"columns of one batch differ in length: {lengths}")
    return next(iter(lengths.values()), 0)


def take(batch: Batch, rows: list[int]) -> Batch:
    """The given rows of every column, in the given order."""
    return {
        name: [column[row] for row in rows] if isinstance(column, list) else column[rows]
        for name, column in batch.items()
    }
