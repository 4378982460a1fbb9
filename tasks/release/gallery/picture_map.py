"""Place the pictures of a lake on a map by a projection that is frozen in a file beside the lake.

The browser only reads a lake, so the projection is no table of it. It is fitted once for each CLIP scorer, on the
vectors with the smallest ids, which are hashes, and fitted again when the vectors have more than doubled: until then
pictures keep their places while the lake grows. Without the file, the next map may lie differently; each layout of
`projection` has a file of its own.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from pairmill.catalog.queries.gallery.image_vectors import ImageVectors
from pairmill.catalog.terms.whole_file import whole_file
from pairmill.ops.whole import projection
from pairmill.ops.whole.projection import Projection

VERSION = 2  # incremented when `projection` places differently
SAMPLED = 10_000
REFIT_AT = 2.0  # times the vectors at the fit
SIDE = 65_535  # places are whole numbers from 0 to SIDE on both axes
MARGIN = 0.02


@dataclass(frozen=True)
class PictureMap:
    """Places (n, 2) uint16 of the pictures of `ImageVectors`. ``digest``: 32 hex digits of the frozen projection."""

    places: np.ndarray
    digest: str

    def inside(self, corners: np.ndarray) -> np.ndarray:
        """Return which pictures (n,) bool lie inside the polygon with ``corners`` (c, 2), by the even-odd rule."""
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


def picture_map(stored: ImageVectors) -> PictureMap:
    """Return the map of the stored vectors; fit the projection and place the pictures where their files are missing.

    A million vectors of 512 numbers take a minute of one CPU, once; those that were added later, 25 s a million.
    """
    folder = stored.path.parent
    frozen = folder / f"projection-{stored.scorer}-{projection.layout()}-v{VERSION}.npz"
    fitted, n_fitted = _load(frozen)
    if fitted is None or len(stored.sha256s) > REFIT_AT * n_fitted:
        fitted, n_fitted = projection.fit(stored.vectors[:SAMPLED]), len(stored.sha256s)
        _save(frozen, fitted, n_fitted)
    digest = hashlib.sha256(fitted.components.tobytes() + fitted.places.tobytes()).hexdigest()[:32]
    path = stored.path.with_suffix(f".{digest[:8]}.places")
    if not path.exists() or path.stat().st_size != 4 * len(stored.sha256s):
        with whole_file(path) as half:
            half.write_bytes(_scaled(fitted.place(stored.vectors), fitted).tobytes())
    return PictureMap(np.fromfile(path, np.uint16).reshape(-1, 2), digest)


def _scaled(places: np.ndarray, fitted: Projection) -> np.ndarray:
    """Scale places to uint16, both axes alike, so that the sample fills the square but for a margin."""
    low, high = fitted.places.min(0), fitted.places.max(0)
    middle, extent = (low + high) / 2, max(float((high - low).max()), 1e-6)
    unit = (places - middle) / extent * (1 - 2 * MARGIN) + 0.5
    return (np.clip(unit, 0, 1) * SIDE).astype(np.uint16)


def _load(path: Path) -> tuple[Projection | None, int]:
    """Return the frozen projection and the number of vectors at its fit, (None, 0) without a readable file."""
    try:
        with np.load(path) as found:
            parts = (found[name] for name in ("mean", "components", "sample", "places"))
            return Projection(*parts), int(found["n"])
    except (OSError, KeyError, ValueError, BadZipFile):
        return None, 0


def _save(path: Path, fitted: Projection, n: int) -> None:
    with whole_file(path) as half, half.open("wb") as file:
        np.savez(file, mean=fitted.mean, components=fitted.components, sample=fitted.sample, places=fitted.places, n=n)
