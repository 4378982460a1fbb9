"""Score images and sentences by embedding them with CLIP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pairmill.ops.batch import Batch
from pairmill.ops.models.clip.clip import Clip


@dataclass(frozen=True)
class EmbedImages:
    """Read ``pixels`` (list of uint8 (h, w, 3)); add ``image_vector`` float32 (n, d), of length 1, and ``fault``.

    ``fault`` is None, or the Fault of an image that does not fit the device on its own; the vector of that image is
    NaN.
    """

    model: str
    precision: str = "fp32"
    batch_size: int = 64
    version: int = Clip.version

    def __call__(self, batch: Batch) -> Batch:
        """Return the batch with the columns ``image_vector`` and ``fault`` added."""
        return batch | self.fetch(self.infer(self.prepare(batch)))

    def load(self) -> None:
        """Load the weights now, and find the batch size."""
        self._clip.load()
        self._clip.fitted_batch_size()

    def prepare(self, batch: Batch) -> Any:
        """Resize and crop the images on the CPU; return None for an empty batch."""
        return self._clip.prepare_images(batch["pixels"]) if batch["pixels"] else None

    def infer(self, ready: Any) -> Any:
        """Launch the prepared batches without waiting for the device."""
        return None if ready is None else self._clip.infer_images(ready)

    def fetch(self, running: Any) -> Batch:
        """Wait for the device; return the columns ``image_vector`` and ``fault``."""
        if running is None:
            return {"image_vector": np.empty((0, 1)), "fault": []}
        return {"image_vector": self._clip.fetch(running), "fault": running.faults()}

    def fitted_batch_size(self) -> int:
        """Return the batch size, in images, at which the model is fastest on this device."""
        return self._clip.fitted_batch_size()

    @property
    def _clip(self) -> Clip:
        """The CLIP model of these settings."""
        return Clip(self.model, self.precision, self.batch_size)


@dataclass(frozen=True)
class EmbedSentences:
    """Read ``text`` (list of sentences); add ``sentence_vector`` float32 (n, d), of length 1, and ``fault``.

    ``fault`` is None, or the Fault of a sentence that does not fit the device on its own; the vector of that sentence
    is NaN.
    """

    model: str
    precision: str = "fp32"
    batch_size: int = 64
    version: int = Clip.version

    def __call__(self, batch: Batch) -> Batch:
        """Return the batch with the columns ``sentence_vector`` and ``fault`` added."""
        return batch | self.fetch(self.infer(self.prepare(batch)))

    def load(self) -> None:
        """Load the weights now."""
        self._clip.load()

    def prepare(self, batch: Batch) -> Any:
        """Tokenize the sentences on the CPU; return None for an empty batch."""
        return self._clip.prepare_texts(batch["text"]) if batch["text"] else None

    def infer(self, ready: Any) -> Any:
        """Launch the prepared batches without waiting for the device."""
        return None if ready is None else self._clip.infer_texts(ready)

    def fetch(self, running: Any) -> Batch:
        """Wait for the device; return the columns ``sentence_vector`` and ``fault``."""
        if running is None:
            return {"sentence_vector": np.empty((0, 1)), "fault": []}
        return {"sentence_vector": self._clip.fetch(running), "fault": running.faults()}

    @property
    def _clip(self) -> Clip:
        """The CLIP model of these settings."""
        return Clip(self.model, self.precision, self.batch_size)
