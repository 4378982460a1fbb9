"""Derive files from a lake's picture vectors, in the same folder: codes to search by, and places on a map.

The browser only reads a lake, so these are files instead of tables. Each file appears complete or not at all, and is
written again if it is missing. No file stays once the file of the vectors is gone: a removal deletes them together, and
a file that was being written at that time is used once and not stored.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import BadZipFile

import numpy as np

from pairmill.catalog.queries.gallery.image_vectors import ImageVectors
from pairmill.catalog.terms.whole_file import whole_file
from pairmill.ops.whole.mapped import blocks, pick_rows
from pairmill.ops.whole.sign_codes import EXACT_BELOW, empty_index

if TYPE_CHECKING:
    import faiss

    from pairmill.ops.whole.projection import Projection  # imports faiss, 0.3 CPU s, which a search saves

ENCODED_AT_ONCE = 20_000
AVERAGED = 20_000  # vectors whose mean is taken off all before they are encoded, evenly spread over the rows
VERSION = 2  # incremented when `projection` places differently
PROJECTED = 10_000  # vectors that the projection is fitted on
REFIT_AT = 2.0  # times the vectors at the fit
SIDE = 65_535  # places are whole numbers from 0 to SIDE on both axes
MARGIN = 0.02


@dataclass(frozen=True)
class PictureMap:
    """Map of the pictures of `ImageVectors`: their places, (n, 2) uint16, and the frozen projection's digest (hex)."""

    places: np.ndarray
    digest: str

    def inside(self, corners: np.ndarray) -> np.ndarray:
        """Return whether each picture, (n,) bool, lies inside the polygon ``corners`` (c, 2), by the even-odd rule."""
        x, y = self.places[:, 0].astype(np.float32), self.places[:, 1].astype(np.float32)
        (left, top), (right, bottom) = corners.min(0), corners.max(0)
        near = np.flatnonzero((x >= left) & (x <= right) & (y >= top) & (y <= bottom))
        x, y, odd = x[near], y[near], np.zeros(len(near), bool)
        for (x1, y1), (x2, y2) in zip(corners, np.roll(corners, -1, 0), strict=True):
            if y1 != y2:
                odd ^= ((y1 > y) != (y2 > y)) & (x < (x2 - x1) * (y - y1) / (y2 - y1) + x1)
        found = np.zeros(len(self.places), bool)
        found[near] = odd
        return found


def code_index(stored: ImageVectors) -> "faiss.Index | None":
    """Return an index of the stored vectors' codes for fast search; None if a full scan is fast enough.

    A million vectors of 512 numbers take 12 s of one CPU, once.
    """
    vectors, n = stored.vectors, len(stored.vectors)
    if n < EXACT_BELOW:
        return None
    import faiss

    path = stored.path.with_suffix(".codes")
    with suppress(OSError, RuntimeError):  # missing, or torn
        found = faiss.deserialize_index(np.fromfile(path, np.uint8))
        if (found.ntotal, found.d) == vectors.shape:
            return found
    made = empty_index(pick_rows(vectors, np.arange(0, n, -(-n // AVERAGED))))
    with _beside(stored, path) as half:
        for block in blocks(vectors, ENCODED_AT_ONCE):
            made.add(block.astype(np.float32))
        half.write_bytes(faiss.serialize_index(made).tobytes())
    return made


def picture_map(stored: ImageVectors) -> PictureMap:
    """Return the map of the stored vectors, by a projection that is frozen in a file of its own.

    The projection is fitted once for each CLIP scorer, on the vectors with the smallest ids, which are hashes, and
    fitted again when the vectors have more than doubled: until then pictures keep their places while the lake grows.
    If that file is deleted, the next map may look different; each layout of `projection` has its own file. A million
    vectors of 512 numbers take a minute of one CPU, once; vectors that are added later take 25 s a million.
    """
    from pairmill.ops.whole import projection

    frozen = stored.path.parent / f"projection-{stored.scorer}-{projection.layout()}-v{VERSION}.npz"
    fitted, n_fitted = _load(frozen)
    n = len(stored.sha256s)
    if fitted is None or n > REFIT_AT * n_fitted:
        fitted = projection.fit(stored.vectors[:PROJECTED])
        with _beside(stored, frozen) as half, half.open("wb") as file:
            np.savez(file, mean=fitted.mean, components=fitted.components, sample=fitted.sample, places=fitted.places,
                     n=n)  # fmt: skip
    digest = hashlib.sha256(fitted.components.tobytes() + fitted.places.tobytes()).hexdigest()[:32]
    path = stored.path.with_suffix(f".{digest[:8]}.places")
    if not path.exists() or path.stat().st_size != 4 * n:
        places = _scale(fitted.place(stored.vectors), fitted)
        with _beside(stored, path) as half:
            half.write_bytes(places.tobytes())
        return PictureMap(places, digest)
    return PictureMap(np.fromfile(path, np.uint16).reshape(-1, 2), digest)


@contextmanager
def _beside(stored: ImageVectors, path: Path) -> Iterator[Path]:
    """Write a file as `whole_file` does, but drop it if the vectors' file is gone at the end of the ``with`` block."""
    is_written = False
    try:
        with whole_file(path) as half:
            yield half
            is_written = True
            if not stored.path.exists():
                raise FileNotFoundError(stored.path)
    except FileNotFoundError:  # a removal deletes what is half written, too
        if not is_written:
            raise


def _scale(places: np.ndarray, fitted: "Projection") -> np.ndarray:
    """Scale places to uint16, both axes alike, so that the sample fills the square but for a margin."""
    low, high = fitted.places.min(0), fitted.places.max(0)
    middle, extent = (low + high) / 2, max(float((high - low).max()), 1e-6)
    unit = (places - middle) / extent * (1 - 2 * MARGIN) + 0.5
    return (np.clip(unit, 0, 1) * SIDE).astype(np.uint16)


def _load(path: Path) -> "tuple[Projection | None, int]":
    """Return the frozen projection and the number of vectors at its fit, (None, 0) without a readable file."""
    from pairmill.ops.whole.projection import Projection

    try:
        with np.load(path) as found:
            parts = (found[name] for name in ("mean", "components", "sample", "places"))
            return Projection(*parts), int(found["n"])
    except (OSError, KeyError, ValueError, BadZipFile):
        return None, 0
