"""Read benchmark pictures, cache their hashes and vectors, and compare the hashes of pictures with theirs.

A benchmark is a folder of pictures that a training set must not have, such as a test set's. All pictures of a recipe's
benchmarks are read by the first process that needs them: 5 ms each for hashes, one forward pass of CLIP for vectors.
Later processes map the cached arrays: 8 bytes a picture, and 3 kB for a vector of 768 dimensions.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from pairmill.catalog.terms.error import BadRecipe
from pairmill.catalog.terms.whole_file import alone, cache_home
from pairmill.ops.batch import Batch
from pairmill.ops.fault import Fault
from pairmill.ops.image.decode import Decode
from pairmill.ops.image.phash import PerceptualHash

SUFFIXES = frozenset((".jpg", ".jpeg", ".jpe", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"))


def pictures(folders: tuple[str, ...]) -> tuple[Path, ...]:
    """List the picture files below the folders, sorted by folder and path. Raises BadRecipe for an empty folder."""
    found: list[Path] = []
    for folder in folders:
        place = Path(folder).expanduser()
        if not place.is_dir():
            raise BadRecipe(f"contamination.sets: '{folder}' is no folder on this machine; name a folder of pictures.")
        here = sorted(file for file in place.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file())
        if not here:
            raise BadRecipe(f"contamination.sets: '{folder}' has no picture ({', '.join(sorted(SUFFIXES))}).")
        found += here
    return tuple(found)


def content_of(folders: tuple[str, ...]) -> str:
    """Return a digest of the pictures' bytes, 32 hex digits; file names and folders do not matter.

    Reads all bytes, once a process unless a file's size or time has changed: 1 GB takes some 2 s.
    """
    found = [(file, file.stat()) for file in pictures(folders)]
    return _digest(tuple((file, stat.st_size, stat.st_mtime_ns) for file, stat in found))


@cache
def _digest(files: tuple[tuple[Path, int, int], ...]) -> str:
    """Return the digest of the files' bytes; each comes with its size and its time of change."""
    each = sorted(hashlib.sha256(file.read_bytes()).hexdigest() for file, *_ in files)
    return hashlib.sha256("".join(each).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class BenchmarkSets:
    """The benchmarks that an op compares pictures with, and the decoder that all pictures share."""

    benchmark_folders: tuple[str, ...]
    side: int
    mode: Literal["exact", "scaled"]
    content: str = field(init=False)  # digest of the benchmarks' bytes; their names do not matter

    def __post_init__(self) -> None:
        object.__setattr__(self, "benchmark_folders", tuple(self.benchmark_folders))
        object.__setattr__(self, "content", content_of(self.benchmark_folders))

    @cached_property
    def files(self) -> tuple[Path, ...]:
        """The files of all benchmark pictures, in order of folders and paths."""
        return pictures(self.benchmark_folders)

    @property
    def decode(self) -> Decode:
        """The decoder for benchmark pictures and for the pictures compared with them."""
        return Decode(self.side, self.mode)

    def computed(self, by: str, compute: Callable[[], np.ndarray]) -> np.ndarray:
        """Return the array of ``compute`` for all files, from the cache if it is there; ``by`` is its cache key."""
        return _load_or_compute((*map(str, self.files), self.content, repr(self.decode), by), compute)


def decode_picture(file: Path, decode: Decode) -> np.ndarray:
    """Decode one benchmark picture to uint8 (h, w, 3). Raises BadRecipe if that fails: its copies would pass unseen."""
    if isinstance(found := decode(file.read_bytes()), Fault):
        raise BadRecipe(f"contamination.sets: '{file}' cannot be decoded ({found.detail}); take it out of the set.")
    return found


def _load_or_compute(key: Sequence[str], compute: Callable[[], np.ndarray]) -> np.ndarray:
    """Return an array of this machine's cache by ``key``, which one process computes while the others wait."""
    file = cache_home() / "benchmarks" / f"{hashlib.sha256(' '.join(key).encode()).hexdigest()[:32]}.npy"
    with alone(file.with_suffix(".lock")):
        if not file.exists():
            made, unfinished = compute(), file.with_suffix(".unfinished.npy")
            try:
                np.save(unfinished, made, allow_pickle=False)
                unfinished.replace(file)
            except OSError:
                return made
    return np.load(file, mmap_mode="r", allow_pickle=False)


@dataclass(frozen=True)
class NearestHash(BenchmarkSets):
    """Read ``luma``; add ``benchmark_bits`` and ``benchmark_copy``: distance and file of the nearest benchmark picture.

    Every picture is compared with every hash of the benchmarks: 50,000 hashes take .1 ms and 400 KB a
    picture of the batch. From some million benchmark pictures on an index of hash parts would be needed.
    """

    version: int = 1

    def __call__(self, batch: Batch) -> Batch:
        """Return ``batch`` with both columns added."""
        hashed = PerceptualHash()

        def compute() -> np.ndarray:
            return np.concatenate(
                [hashed({"pixels": [decode_picture(file, self.decode)]})["phash"] for file in self.files]
            )

        own, benchmarks = hashed({"luma": batch["luma"]})["phash"], self.computed(repr(hashed), compute)
        bits = np.bitwise_count(own[:, None] ^ benchmarks[None, :])
        nearest = bits.argmin(axis=1)
        return batch | {
            "benchmark_bits": bits[np.arange(len(own)), nearest].astype(int).tolist(),
            "benchmark_copy": [str(self.files[place]) for place in nearest],
        }
