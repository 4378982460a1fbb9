"""Hold rows in batches on their way through a model, and what becomes of each row: values, or that it has no room."""

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
    """Batches of ``n`` rows: the row numbers of each, with what the model takes of them and, once it is launched, their
    values on the device; None for a row that had no room there by itself."""

    n: int
    batches: list[tuple[list[int], Any]]

    def launched(self, run: Callable[[Any], torch.Tensor]) -> RowBatches:
        """Run each batch, in halves where the device's memory runs out; the device is not waited for."""
        done = [
            (rows[at.start : at.stop], values)
            for rows, given in self.batches
            for at, values in run_in_parts(run, given)
        ]
        return RowBatches(self.n, done)

    def fetched(self, kind: type, *shape: int) -> np.ndarray:
        """Copy the values of launched batches into one array (n, *shape) of floats of this ``kind``; NaN where a row
        has none. Only here is the device waited for."""
        found = np.full((self.n, *shape), np.nan, kind)
        for rows, values in self.batches:
            if values is not None:
                found[rows] = values.cpu().numpy()
        return found

    def faults(self) -> list[Fault | None]:
        """Tell for each row of launched batches why it has no values; None where it has, or is in no batch."""
        found: list[Fault | None] = [None] * self.n
        for rows, values in self.batches:
            for row in rows if values is None else ():
                found[row] = Fault("", *NO_ROOM)
        return found

    def complete(self) -> RowBatches:
        """Return these launched batches, for a caller that cannot do without a row. Raises torch.cuda.OutOfMemoryError
        where one had no room."""
        if any(values is None for _, values in self.batches):
            raise torch.cuda.OutOfMemoryError(NO_ROOM[1])
        return self
