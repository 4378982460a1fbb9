"""Score rows by a model in three steps, so that a device computes while the CPU prepares other batches."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pairmill.ops.batch import Batch
from pairmill.ops.models.model_error import ModelError

if TYPE_CHECKING:
    import torch

    from pairmill.ops.models.device.row_batches import RowBatches

PRECISIONS = ("fp32", "bf16")


@dataclass(frozen=True)
class BatchedScore(ABC):
    """Base of scores by a model: read the column ``reads``; add the columns ``adds`` and ``fault``.

    The model loads once per process. ``fault`` is None, or the Fault of a row that does not fit the device on its own;
    its values are NaN. ``precision`` ('fp32', 'bf16') is part of the score's identity. ``batch_size`` is not: it
    changes values by rounding only. Code from the model's repository never runs. Raises ModelError for an unknown
    ``precision``; on use, for a model that is missing or of another kind.
    """

    name: ClassVar[str]
    reads: ClassVar[str]
    adds: ClassVar[str]

    model: str
    precision: str = "fp32"
    batch_size: int = 64
    version: int = 1

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise ModelError(f"{self.name}: precision '{self.precision}'; write one of {', '.join(PRECISIONS)}")

    @abstractmethod
    def load(self) -> None:
        """Load the model's weights now, and find its fastest batch size."""

    @abstractmethod
    def inputs(self, batch: Batch) -> "RowBatches":
        """Build the model's inputs for a batch of at least one row, on the CPU."""

    @abstractmethod
    def run(self, rows: Any) -> "torch.Tensor":
        """Launch the model on the inputs of some rows without waiting for the device; return values on the device."""

    @abstractmethod
    def values(self, launched: "RowBatches") -> np.ndarray:
        """Wait for the device; return the values of all rows as an array of n rows."""

    def __call__(self, batch: Batch) -> Batch:
        """Return the batch with both columns added."""
        return batch | self.fetch(self.infer(self.prepare(batch)))

    def prepare(self, batch: Batch) -> "RowBatches | None":
        """Build the model's inputs for a batch, on the CPU; None for an empty batch."""
        return self.inputs(batch) if batch[self.reads] else None

    def infer(self, ready: "RowBatches | None") -> "RowBatches | None":
        """Launch the prepared batches without waiting for the device; halve a batch that runs out of memory."""
        return None if ready is None else ready.launched(self.run)

    def fetch(self, running: "RowBatches | None") -> Batch:
        """Wait for the device; return the columns ``adds`` and ``fault``."""
        if running is None:
            return {self.adds: np.empty(0), "fault": []}
        return {self.adds: self.values(running), "fault": running.faults()}
