"""Compare image vectors with those of benchmarks: other crops and views of a picture are near by cosine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pairmill.ops.batch import Batch
from pairmill.ops.image.benchmark_hash import BenchmarkSets, decoded
from pairmill.ops.models.clip.clip import Clip


@dataclass(frozen=True)
class NearestVector(BenchmarkSets):
    """Read ``image_vector``; add ``benchmark_cosine`` and ``benchmark_near``: cosine and file of the nearest picture.

    Every vector is compared with every vector of the benchmarks, by one matrix product a batch: with 50,000 of 768
    dimensions 77 MFLOP a picture, so that 30M pictures take an hour of a CPU of 650 GFLOP/s.

    Attributes:
        model: Spec of the CLIP whose vectors the pictures have.
        precision: Its precision.
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
                [clip.embed_images([decoded(file, self.decode) for file in some]) for some in batches]
            )

        return self.computed(repr(clip), compute)
