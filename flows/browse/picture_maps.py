"""Compute and cache the maps of a lake's galleries: the place of each image, colours by a column, areas."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.api.answer_types import FACETS, Gallery, ImageSet, ImageVectors
from pairmill.flows.browse.background import Background
from pairmill.flows.browse.picture_search import PictureSearch
from pairmill.tasks.release.gallery.vector_files import PictureMap, picture_map

NAMED = 10  # values of a column that have a colour of their own
LABELLED = 24  # clusters
NONE, LEVELS = 255, 254  # codes: no value; numbers are 0 to LEVELS
PLAIN = {"fate": "dropped_by", **FACETS, "cluster": "cluster", "status": "caption_status"}


@dataclass(frozen=True)
class MappedGallery:
    """A gallery with its map: the places of the images that have a vector."""

    gallery: Gallery
    stored: ImageVectors  # the vectors of its pictures
    map: PictureMap  # the place of each stored vector
    images: np.ndarray  # row numbers of the mapped images in the gallery, in the order of ``image_id``
    vectors: np.ndarray  # row numbers of their vectors in ``stored``, of the length of ``images``


class PictureMaps:
    """Cache of the maps of one open lake, computed in the background: a map of a million pictures takes a minute."""

    def __init__(self, search: PictureSearch) -> None:
        self._search = search
        self._maps: Background[MappedGallery] = Background()
        self.close, self.forget = self._maps.close, self._maps.forget

    def find(self, dataset: str, gallery: Gallery, patience: float) -> MappedGallery | None:
        """Return the map of a gallery, None if it is not computed after ``patience`` seconds."""
        return self._maps.find(dataset, gallery, partial(self._make, dataset, gallery), patience)

    def area(self, dataset: str, gallery: Gallery, corners: str) -> ImageSet | None:
        """Return the pictures inside a polygon on the map; None if ``corners`` is ''.

        ``corners`` are the polygon's points in the map's coordinates, as 'x,y;x,y;x,y'.

        Raises PairmillError if the map is not computed after 30 s.
        """
        if not corners:
            return None
        found = self.find(dataset, gallery, 30.0)
        if found is None:
            raise PairmillError("the map is still being made; open the map, then this gallery again.")
        polygon = np.array([pair.split(",") for pair in corners.split(";")], np.float32)
        return ImageSet(pa.table({"sha256": list(found.stored.names(np.flatnonzero(found.map.inside(polygon))))}))

    def _make(self, dataset: str, gallery: Gallery) -> MappedGallery:
        stored = self._search.vectors(dataset)
        shas = gallery.pictures()
        places = np.minimum(np.searchsorted(stored.sha256s, shas), len(stored.sha256s) - 1)
        images = np.flatnonzero(stored.sha256s[places] == shas)
        return MappedGallery(gallery, stored, picture_map(stored), images, places[images])


def labels(found: MappedGallery, names: Mapping[int, str]) -> list[dict[str, Any]]:
    """Return the LABELLED clusters with most images on the map: cluster, name, number n, median place x and y."""
    if "cluster" not in found.gallery.types:
        return []
    clusters = found.gallery.column("coalesce(cluster, -1)").to_numpy()[found.images]
    values, counts = np.unique(clusters[clusters >= 0], return_counts=True)
    shown, places = [], found.map.places[found.vectors]
    for at in np.argsort(-counts, kind="stable")[:LABELLED]:
        x, y = np.median(places[clusters == values[at]], axis=0).astype(int).tolist()
        cluster = int(values[at])
        shown.append({"cluster": cluster, "name": names.get(cluster, ""), "n": int(counts[at]), "x": x, "y": y})
    return shown


def density(found: MappedGallery) -> np.ndarray:
    """Count the images in each image's cell of a grid of 256 x 256 over the map: (n,) float64, from 1."""
    x, y = found.map.places[found.vectors].T.astype(np.int64) >> 8
    return np.bincount(256 * x + y)[256 * x + y].astype(np.float64)


def points(found: MappedGallery) -> bytes:
    """Encode the places of the images on the map: (n, 2) uint16, little-endian."""
    return found.map.places[found.vectors].astype("<u2").tobytes()


def colours(found: MappedGallery, column: str) -> tuple[bytes, dict[str, Any]]:
    """Encode a column as a colour code for each image, (n,) uint8, and return its legend too.

    A numeric column has LEVELS + 1 equal steps between its 1st and 99th percentile, and the legend ``low`` and
    ``high``. Another has a code for each of its NAMED most frequent values, NAMED for all others, and the legend
    ``names``. The code NONE stands for no value. Raises PairmillError for an unknown column.
    """
    gallery = found.gallery
    if column == "density" or column in gallery.numbers:
        if column == "density":
            values = density(found)
        else:
            values = gallery.column(f"CAST({column} AS DOUBLE)").to_numpy().astype(np.float64)[found.images]
        real = values[np.isfinite(values)]
        low, high = (float(each) for each in np.percentile(real, (1, 99))) if len(real) else (0.0, 1.0)
        steps = np.clip((values - low) / ((high - low) or 1.0), 0, 1) * LEVELS
        codes = np.where(np.isfinite(values), np.nan_to_num(steps), NONE)
        return codes.astype(np.uint8).tobytes(), {"low": low, "high": high}
    source = PLAIN.get(column, column)
    if source not in gallery.types or (column not in PLAIN and gallery.types[source] != "BOOLEAN"):
        raise PairmillError(f"the map cannot be coloured by '{column[:80]}'; choose a column of the list.")
    top, every = gallery.value_codes(source, NAMED, NONE)
    codes = every[found.images]
    names = [("kept" if column == "fate" and not each else each)[-60:] for each in top]
    return codes.astype(np.uint8).tobytes(), {"names": names}


def columns(gallery: Gallery) -> list[str]:
    """Return the names of the columns that can colour a map: categories, flags, numbers."""
    plain = [name for name, source in PLAIN.items() if source in gallery.types]
    flags = [name for name, kind in gallery.types.items() if kind == "BOOLEAN" and not name.startswith("_")]
    return [*plain, "density", *flags, *gallery.numbers]
