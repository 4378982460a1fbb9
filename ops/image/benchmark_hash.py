"""Compare pictures with benchmarks by perceptual hash: copies of another size, format or quality differ in few bits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from pairmill.ops.batch import Batch
from pairmill.ops.image.benchmark_set import cached, content_of, decoded, pictures
from pairmill.ops.image.decode import Decode
from pairmill.ops.image.phash import PerceptualHash


@dataclass(frozen=True)
class NearestHash:
    """Read ``luma``; add ``benchmark_bits`` and ``benchmark_copy``: distance and file of the nearest benchmark picture.

    Every picture is compared with every hash of the benchmarks: 50,000 hashes take .1 ms a picture. From some ten
    million benchmark pictures on an index of hash parts would be needed.

    Attributes:
        benchmark_folders: The benchmarks' folders.
        side: Side of the decoder that all pictures share.
        mode: Mode of that decoder.
        content: Digest of the benchmarks' bytes; their names do not matter.
    """

    benchmark_folders: tuple[str, ...]
    side: int
    mode: Literal["exact", "scaled"]
    content: str = field(init=False)
    version: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "benchmark_folders", tuple(self.benchmark_folders))
        object.__setattr__(self, "content", content_of(self.benchmark_folders))

    def __call__(self, batch: Batch) -> Batch:
        """Return ``batch`` with both columns added."""
        own = PerceptualHash()({"luma": batch["luma"]})["phash"]
        bits = np.bitwise_count(own[:, None] ^ self._hashes()[None, :])
        nearest = bits.argmin(axis=1)
        files = pictures(self.benchmark_folders)
        return batch | {
            "benchmark_bits": bits[np.arange(len(own)), nearest].astype(int).tolist(),
            "benchmark_copy": [str(files[place]) for place in nearest],
        }

    def _hashes(self) -> np.ndarray:
        """Return the benchmarks' hashes uint64 (n,), in the order of `pictures`."""
        decode, hashed = Decode(self.side, self.mode), PerceptualHash()
        key = (*map(str, pictures(self.benchmark_folders)), self.content, repr(decode), repr(hashed))
        return cached(
            key,
            lambda: np.concatenate(
                [hashed({"pixels": [decoded(file, decode)]})["phash"] for file in pictures(self.benchmark_folders)]
            ),
        )
