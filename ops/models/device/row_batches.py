"""Run rows through a model in batches; split a batch into two halves if the device runs out of memory."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch

from pairmill.ops.fault import Fault
from pairmill.ops.models.device.failures import is_no_room

# Quarantine reason and detail for a row that does not fit the device on its own.
NO_ROOM = ("out_of_memory", "no room for it alone")
Result = TypeVar("Result")


@dataclass(frozen=True)
class RowBatches:
    """``n`` rows in batches, each batch (row numbers, content).

    The content is the model's inputs before `launched`, and the values on the device after it, or None for a row that
    does not fit the device on its own.
    """

    n: int
    batches: list[tuple[list[int], Any]]

    def launched(self, run: Callable[[Any], torch.Tensor]) -> "RowBatches":
        """Return the batches with ``run`` launched on each, without waiting; halve a batch that runs out of memory."""
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

    def complete(self) -> "RowBatches":
        """Return the launched batches; raise torch.cuda.OutOfMemoryError if any row did not fit the device."""
        if any(values is None for _, values in self.batches):
            raise torch.cuda.OutOfMemoryError(NO_ROOM[1])
        return self


def run_in_parts(run: Callable[[Any], Result], rows: Any) -> list[tuple[range, Result | None]]:
    """Run ``rows`` (a tensor, a list or a range) as one batch; split it in halves if the GPU's memory runs out.

    Returns the parts in order: the row indexes of each, and the result of ``run``, None for one row that does not fit.
    """

    def parts(at: range) -> list[tuple[range, Result | None]]:
        try:
            return [(at, run(rows[at.start : at.stop]))]
        except Exception as error:
            if not is_no_room(error):
                raise
            # tensors of the failed batch are freed only outside of the handler
        torch.cuda.empty_cache()
        half = len(at) // 2
        return parts(at[:half]) + parts(at[half:]) if half else [(at, None)]

    return parts(range(len(rows)))


def text_batches(lengths: list[int], batch_size: int) -> list[list[int]]:
    """Group row numbers into batches of similar length, longest first: little padding, and peak memory at the start.

    Ties keep row order, so the batches depend on the lengths alone.
    """
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]


def token_batches(lengths: list[int], tokens: int) -> list[list[int]]:
    """Group row numbers into batches of similar length, longest first, of at most ``tokens`` tokens including padding.

    A row is padded by at most a third of its length, which costs at most 24 more batches for lengths up to 1,000
    tokens. A row longer than ``tokens`` is a batch of its own; a row of length 0 is in no batch. Ties keep row order.
    """
    order = sorted((row for row, length in enumerate(lengths) if length), key=lambda row: -lengths[row])
    batches: list[list[int]] = []
    longest = 0  # of the current batch: its rows are padded to this length
    for row in order:
        if not batches or (len(batches[-1]) + 1) * longest > tokens or 4 * lengths[row] < 3 * longest:
            batches.append([])
            longest = lengths[row]
        batches[-1].append(row)
    return batches
