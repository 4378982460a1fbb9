"""Carry rows in batches through a model; return each row's values, or the fault that it does not fit the device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pairmill.ops.fault import Fault
from pairmill.ops.models.device.device import NO_ROOM, run_in_parts


@dataclass(frozen=True)
class RowBatches:
    """Batches of ``n`` rows, each (row numbers, content).

    The content is the model's inputs at first. Once launched, it is the values on the device, or None for a row that
    does not fit the device on its own.
    """

    n: int
    batches: list[tuple[list[int], Any]]

    def launched(self, run: Callable[[Any], torch.Tensor]) -> RowBatches:
        """Run each batch without waiting for the device; halve a batch that runs out of memory."""
        done = [
            (rows[at.start : at.stop], values)
            for rows, given in self.batches
            for at, values in run_in_parts(run, given)
        ]
        return RowBatches(self.n, done)

    def fetched(self, kind: type, *shape: int) -> np.ndarray:
        """Wait for the device; copy the values of launched batches into one array (n, *shape) of float type ``kind``.

        NaN for a row without values.
        """
        found = np.full((self.n, *shape), np.nan, kind)
        for rows, values in self.batches:
            if values is not None:
                found[rows] = values.cpu().numpy()
        return found

    def faults(self) -> list[Fault | None]:
        """Return a Fault for each row of launched batches that does not fit the device, None for every other row."""
        found: list[Fault | None] = [None] * self.n
        for rows, values in self.batches:
            for row in rows if values is None else ():
                found[row] = Fault("", *NO_ROOM)
        return found

    def complete(self) -> RowBatches:
        """Return these launched batches; raise torch.cuda.OutOfMemoryError if any row did not fit the device."""
        if any(values is None for _, values in self.batches):
            raise torch.cuda.OutOfMemoryError(NO_ROOM[1])
        return self
