"""Compare pictures with benchmarks by perceptual hash: copies of another size, format or quality differ in few bits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pairmill.ops.batch import Batch
from pairmill.ops.image.benchmark_set import BenchmarkSets, decoded
from pairmill.ops.image.phash import PerceptualHash


@dataclass(frozen=True)
class NearestHash(BenchmarkSets):
    """Read ``luma``; add ``benchmark_bits`` and ``benchmark_copy``: distance and file of the nearest benchmark picture.

    Every picture is compared with every hash of the benchmarks: 50,000 hashes take .1 ms and 400 KB a
    picture of the batch. From some million benchmark pictures on an index of hash parts would be needed.
    """

    version: int = 1

    def __call__(self, batch: Batch) -> Batch:
        """Return ``batch`` with both columns added."""
        own = PerceptualHash()({"luma": batch["luma"]})["phash"]
        bits = np.bitwise_count(own[:, None] ^ self._hashes()[None, :])
        nearest = bits.argmin(axis=1)
        return batch | {
            "benchmark_bits": bits[np.arange(len(own)), nearest].astype(int).tolist(),
            "benchmark_copy": [str(self.files[place]) for place in nearest],
        }

    def _hashes(self) -> np.ndarray:
        """Return the benchmarks' hashes uint64 (n,), in the order of `files`."""
        hashed = PerceptualHash()

        def compute() -> np.ndarray:
            return np.concatenate([hashed({"pixels": [decoded(file, self.decode)]})["phash"] for file in self.files])

        return self.computed(repr(hashed), compute)
