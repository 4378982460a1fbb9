"""Compare image vectors with those of benchmarks: other crops and views of a picture are near by cosine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from pairmill.ops.batch import Batch
from pairmill.ops.image.benchmark_set import cached, content_of, decoded, pictures
from pairmill.ops.image.decode import Decode
from pairmill.ops.models.clip.clip import Clip


@dataclass(frozen=True)
class NearestVector:
    """Read ``image_vector``; add ``benchmark_cosine`` and ``benchmark_near``: cosine and file of the nearest picture.

    Every vector is compared with every vector of the benchmarks, by one matrix product a batch: with 50,000 of 768
    dimensions 77 MFLOP a picture, so that 30M pictures take an hour of a CPU of 650 GFLOP/s.

    Attributes:
        benchmark_folders: The benchmarks' folders.
        side: Side of the decoder that all pictures share.
        mode: Mode of that decoder.
        model: Spec of the CLIP whose vectors the pictures have.
        precision: Its precision.
        content: Digest of the benchmarks' bytes; their names do not matter.
    """

    benchmark_folders: tuple[str, ...]
    side: int
    mode: Literal["exact", "scaled"]
    model: str
    precision: str = "fp32"
    batch_size: int = 64
    content: str = field(init=False)
    version: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "benchmark_folders", tuple(self.benchmark_folders))
        object.__setattr__(self, "content", content_of(self.benchmark_folders))

    def __call__(self, batch: Batch) -> Batch:
        """Return ``batch`` with both columns added."""
        vectors = np.asarray(batch["image_vector"], np.float32)
        if not len(vectors):
            return batch | {"benchmark_cosine": [], "benchmark_near": []}
        cosines = vectors @ self._vectors().T
        nearest = cosines.argmax(axis=1)
        files = pictures(self.benchmark_folders)
        return batch | {
            "benchmark_cosine": cosines[np.arange(len(vectors)), nearest].tolist(),
            "benchmark_near": [str(files[place]) for place in nearest],
        }

    def _vectors(self) -> np.ndarray:
        """Return the benchmarks' vectors float32 (n, d), in the order of `pictures`."""
        decode, clip = Decode(self.side, self.mode), Clip(self.model, self.precision, self.batch_size)

        def compute() -> np.ndarray:
            files, rows = pictures(self.benchmark_folders), self.batch_size
            batches = [files[first : first + rows] for first in range(0, len(files), rows)]
            return np.concatenate([clip.embed_images([decoded(file, decode) for file in some]) for some in batches])

        return cached((*map(str, pictures(self.benchmark_folders)), self.content, repr(decode), repr(clip)), compute)
