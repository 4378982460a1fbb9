"""Score pictures and sentences by their CLIP vectors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ops.batch import Batch
from ops.models.clip import Clip


@dataclass(frozen=True)
class EmbedImages:
    """Read ``pixels`` (list of uint8 (h, w, 3)); add ``image_vector`` float32 (n, d), of length 1."""

    model: str
    precision: str = "fp32"
    batch_size: int = 64
    version: int = Clip.version

    def __call__(self, batch: Batch) -> Batch:
        clip = Clip(self.model, self.precision, self.batch_size)
        return batch | {"image_vector": clip.embed_images(batch["pixels"]) if batch["pixels"] else np.empty((0, 1))}


@dataclass(frozen=True)
class EmbedSentences:
    """Read ``text`` (list of sentences); add ``sentence_vector`` float32 (n, d), of length 1."""

    model: str
    precision: str = "fp32"
    batch_size: int = 64
    version: int = Clip.version

    def __call__(self, batch: Batch) -> Batch:
        clip = Clip(self.model, self.precision, self.batch_size)
        return batch | {"sentence_vector": clip.embed_texts(batch["text"]) if batch["text"] else np.empty((0, 1))}
