"""Score images and sentences by embedding them with CLIP, and images by their nearest benchmark picture."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pairmill.ops.batch import Batch
from pairmill.ops.image.benchmark_hash import BenchmarkSets, decode_picture
from pairmill.ops.models.clip.clip import Clip
from pairmill.ops.models.device.batched_score import BatchedScore

if TYPE_CHECKING:
    import torch

    from pairmill.ops.models.device.row_batches import RowBatches


@dataclass(frozen=True)
class ClipEmbedding(BatchedScore):
    """Base of the scores that embed rows by CLIP as vectors float32 (n, d) of length 1."""

    name: ClassVar[str] = "clip"

    version: int = Clip.version

    @property
    def _clip(self) -> Clip:
        """The CLIP model of these settings."""
        return Clip(self.model, self.precision, self.batch_size)

    def values(self, launched: "RowBatches") -> np.ndarray:
        """Wait for the device; return the vectors of all rows, float32 (n, d)."""
        return self._clip.fetch(launched)


@dataclass(frozen=True)
class EmbedImages(ClipEmbedding):
    """Read ``pixels`` (list of uint8 (h, w, 3)); add ``image_vector`` and ``fault``."""

    reads: ClassVar[str] = "pixels"
    adds: ClassVar[str] = "image_vector"

    def load(self) -> None:
        """Load the weights now, and find the fastest batch size."""
        self._clip.load()
        self.fitted_batch_size()

    def inputs(self, batch: Batch) -> "RowBatches":
        """Resize and crop the images of ``batch`` into the model's inputs, on the CPU."""
        return self._clip.prepare_images(batch["pixels"])

    def run(self, rows: Any) -> "torch.Tensor":
        """Launch CLIP's image encoder on prepared images; return vectors (n, d) on the device."""
        return self._clip.loaded.embed_images(rows)

    def fitted_batch_size(self) -> int:
        """Return the batch size, in images, at which the model is fastest on this device."""
        return self._clip.fitted_batch_size()


@dataclass(frozen=True)
class EmbedSentences(ClipEmbedding):
    """Read ``text`` (list of sentences); add ``sentence_vector`` and ``fault``."""

    reads: ClassVar[str] = "text"
    adds: ClassVar[str] = "sentence_vector"

    def load(self) -> None:
        """Load the weights now, and find the fastest batch size."""
        self._clip.load()
        self._clip.fit_texts()

    def inputs(self, batch: Batch) -> "RowBatches":
        """Tokenize the sentences of ``batch`` into the model's inputs, on the CPU."""
        return self._clip.prepare_texts(batch["text"])

    def run(self, rows: Any) -> "torch.Tensor":
        """Launch CLIP's text encoder on tokenized sentences; return vectors (n, d) on the device."""
        return self._clip.loaded.embed_tokens(rows)


@dataclass(frozen=True)
class NearestVector(BenchmarkSets):
    """Read ``image_vector``; add ``benchmark_cosine`` and ``benchmark_near``, cosine and file of the nearest benchmark.

    Other crops and views of a picture are near by cosine. Every vector is compared with every vector of the benchmarks,
    by one matrix product a batch: with 50,000 of 768 dimensions 77 MFLOP a picture, so that 30M pictures take an hour
    of a CPU of 650 GFLOP/s. ``model`` is the spec of the CLIP whose vectors the pictures have.
    """

    model: str
    precision: str = "fp32"
    batch_size: int = 64
    version: int = 1

    def __call__(self, batch: Batch) -> Batch:
        """Return ``batch`` with both columns added."""
        vectors = np.asarray(batch["image_vector"], np.float32)
        if not len(vectors):
            return batch | {"benchmark_cosine": [], "benchmark_near": []}
        cosines = vectors @ self._vectors().T
        nearest = cosines.argmax(axis=1)
        return batch | {
            "benchmark_cosine": cosines[np.arange(len(vectors)), nearest].tolist(),
            "benchmark_near": [str(self.files[place]) for place in nearest],
        }

    def _vectors(self) -> np.ndarray:
        """Return the benchmarks' vectors float32 (n, d), in the order of `files`."""
        clip = Clip(self.model, self.precision, self.batch_size)

        def compute() -> np.ndarray:
            firsts = range(0, len(self.files), self.batch_size)
            batches = [self.files[first : first + self.batch_size] for first in firsts]
            return np.concatenate(
                [clip.embed_images([decode_picture(file, self.decode) for file in some]) for some in batches]
            )

        return self.computed(repr(clip), compute)
