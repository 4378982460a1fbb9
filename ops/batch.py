"""Define Batch, what ops read and return: columns of equal length by name."""

from __future__ import annotations

from typing import Any, TypeAlias

# A column is a list (bytes, text, arrays of different shapes, faults) or a numpy array whose first axis is the item.
Batch: TypeAlias = dict[str, Any]
