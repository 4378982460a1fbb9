"""Score images and sentences by embedding them with CLIP."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pairmill.ops.batch import Batch
from pairmill.ops.models.clip.clip import Clip


@dataclass(frozen=True)
class ClipEmbedding(ABC):
    """Embed each value of the column ``reads`` by CLIP; add its vector as the column ``adds``, and ``fault``."""

    reads: ClassVar[str]
    adds: ClassVar[str]

    model: str
    precision: str = "fp32"
    batch_size: int = 64
    version: int = Clip.version

    def __call__(self, batch: Batch) -> Batch:
        """Return the batch with the vectors and the column ``fault`` added."""
        return batch | self.fetch(self.infer(self.prepare(batch)))

    def load(self) -> None:
        """Load the weights now."""
        self._clip.load()

    def prepare(self, batch: Batch) -> Any:
        """Make the model's input on the CPU; return None for an empty batch."""
        return self.inputs(batch[self.reads]) if batch[self.reads] else None

    def infer(self, ready: Any) -> Any:
        """Launch the prepared batches without waiting for the device."""
        return None if ready is None else self.launch(ready)

    def fetch(self, running: Any) -> Batch:
        """Wait for the device; return the vectors and the column ``fault``."""
        if running is None:
            return {self.adds: np.empty((0, 1)), "fault": []}
        return {self.adds: self._clip.fetch(running), "fault": running.faults()}

    @abstractmethod
    def inputs(self, values: list) -> Any:
        """Make the model's input from the column's values, of which there is at least one."""

    @abstractmethod
    def launch(self, ready: Any) -> Any:
        """Launch the model on its inputs, without waiting for the device."""

    @property
    def _clip(self) -> Clip:
        """The CLIP model of these settings."""
        return Clip(self.model, self.precision, self.batch_size)


@dataclass(frozen=True)
class EmbedImages(ClipEmbedding):
    """Read ``pixels`` (list of uint8 (h, w, 3)); add ``image_vector`` float32 (n, d), of length 1, and ``fault``.

    ``fault`` is None, or the Fault of an image that does not fit the device on its own; the vector of that image is
    NaN.
    """

    reads: ClassVar[str] = "pixels"
    adds: ClassVar[str] = "image_vector"

    def load(self) -> None:
        """Load the weights now, and find the batch size."""
        super().load()
        self.fitted_batch_size()

    def inputs(self, values: list) -> Any:
        """Resize and crop the images."""
        return self._clip.prepare_images(values)

    def launch(self, ready: Any) -> Any:
        """Launch CLIP's image encoder on the prepared images."""
        return self._clip.infer_images(ready)

    def fitted_batch_size(self) -> int:
        """Return the batch size, in images, at which the model is fastest on this device."""
        return self._clip.fitted_batch_size()


@dataclass(frozen=True)
class EmbedSentences(ClipEmbedding):
    """Read ``text`` (list of sentences); add ``sentence_vector`` float32 (n, d), of length 1, and ``fault``.

    ``fault`` is None, or the Fault of a sentence that does not fit the device on its own; the vector of that sentence
    is NaN.
    """

    reads: ClassVar[str] = "text"
    adds: ClassVar[str] = "sentence_vector"

    def load(self) -> None:
        """Load the weights now, and find the batch size."""
        super().load()
        self._clip.fit_texts()

    def inputs(self, values: list) -> Any:
        """Tokenize the sentences."""
        return self._clip.prepare_texts(values)

    def launch(self, ready: Any) -> Any:
        """Launch CLIP's text encoder on the prepared sentences."""
        return self._clip.infer_texts(ready)
