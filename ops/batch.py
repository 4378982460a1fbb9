"""Define Batch, the input and output type of every op: a dict of equally long columns by name."""

from typing import Any, TypeAlias

# A column is a list (bytes, text, arrays of different shapes, faults) or a numpy array. One element, or one index of
# the first axis, is one item.
Batch: TypeAlias = dict[str, Any]
