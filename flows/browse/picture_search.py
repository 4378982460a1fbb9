"""Search a lake's pictures by words or by a picture, with the CLIP model whose vectors the lake stores."""

import secrets
import threading
from collections import OrderedDict
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.api.answer_types import ImageVectors
from pairmill.flows.browse.browsed_lake import BrowsedLake
from pairmill.ops.fault import Fault
from pairmill.ops.image.decode import Decode
from pairmill.ops.models.clip.clip import ClipTower, Side
from pairmill.ops.models.model_digest import model_digest
from pairmill.ops.whole.mapped import pick_rows
from pairmill.ops.whole.sign_codes import nearest
from pairmill.tasks.release.gallery.vector_files import code_index

if TYPE_CHECKING:
    import faiss

FOUND = 600  # the most similar pictures, which the gallery's filters then restrict
REMEMBERED = 64  # searches, and uploaded pictures, whose results later pages of their gallery need


class PictureSearch:
    """Picture search over one open lake. A search loads the CLIP tower of its query; vectors are memory-mapped."""

    def __init__(self, opened: BrowsedLake) -> None:
        self._opened = opened
        self._lock = threading.Lock()
        self._remembered = lru_cache(REMEMBERED)(self._search)
        self._uploads: OrderedDict[str, np.ndarray] = OrderedDict()
        self._vectors: dict[str, tuple[object, ImageVectors, faiss.Index | None]] = {}
        self._checked: set[tuple[str, str]] = set()
        self.is_loaded = False  # whether a search has loaded a model, which takes seconds

    def find(self, dataset: str, words: str, like: str) -> Mapping[str, float] | None:
        """Return sha256 -> similarity of the most similar pictures, best first; None without ``words`` and ``like``.

        ``like`` is the sha256 of a picture of the lake, or the name of an uploaded picture. Raises PairmillError if the
        lake has no vectors, or its model's files have changed since.
        """
        if not words.strip() and not like:
            return None
        with self._lock:
            return self._remembered(dataset, words, like, self._find_vectors(dataset)[0].path.name)

    def upload(self, dataset: str, data: bytes) -> str:
        """Embed an uploaded picture; return its name, for ``like`` of `find`.

        Raises PairmillError if it does not decode, or the model is not the one that made the vectors.
        """
        with self._lock:
            model = self._model(dataset, self._find_vectors(dataset)[0], "image")
            pixels = Decode(side=max(model.image_size, 1)).preview(data)
            if isinstance(pixels, Fault):
                raise PairmillError(f"this file is no picture that can be read ({pixels.reason}); choose another.")
            name = f"upload-{secrets.token_hex(8)}"
            self._uploads[name] = model.embed_images([pixels])[0]
            while len(self._uploads) > REMEMBERED:
                self._uploads.popitem(last=False)
            return name

    def forget(self) -> None:
        """Drop all cached vectors, uploads and search results."""
        with self._lock:
            self._vectors.clear()
            self._uploads.clear()
            self._remembered.cache_clear()

    def vectors(self, dataset: str) -> ImageVectors:
        """Return the vectors of a version's pictures ('': the whole lake's). Raises PairmillError if there are none."""
        with self._lock:
            return self._find_vectors(dataset)[0]

    def _search(self, dataset: str, words: str, like: str, _: str) -> Mapping[str, float]:
        """Search the vectors' file. Its name is the last argument, for the cache: a commit changes it."""
        stored, index = self._find_vectors(dataset)
        if like in self._uploads:
            query = self._uploads[like]
        elif like:
            row = stored.row(like)
            if row is None:
                raise PairmillError(f"picture '{like}' has no vector here; search by another, or upload it again.")
            query = np.asarray(stored.vectors[row], np.float32)
        else:
            query = self._model(dataset, stored, "text").embed_texts([words])[0]
        rows = nearest(index, query, stored.vectors, FOUND)
        similarities = pick_rows(stored.vectors, rows).astype(np.float32) @ query
        return dict(zip(stored.names(rows), similarities.tolist(), strict=True))

    def _find_vectors(self, dataset: str) -> tuple[ImageVectors, "faiss.Index | None"]:
        """Return the vectors of a version, or of the whole lake, with their index; looked up again after a commit."""
        lake = self._opened.connection("search")
        version = self._opened.dataset(dataset)
        state = (str(version), version.run_id) if version else lake.newest_commit
        known = self._vectors.get(dataset)
        if known is None or known[0] != state:
            found = lake.picture_vectors(dataset)
            if found is None:
                raise PairmillError(
                    "this lake holds no vectors of pictures to search in; a run with a CLIP model makes them."
                )
            known = self._vectors[dataset] = state, found, code_index(found)
        return known[1:]

    def _model(self, dataset: str, stored: ImageVectors, side: Side) -> ClipTower:
        """Return a tower of the CLIP of a version's recipe ('': the newest version). PairmillError if it is another."""
        version = self._opened.dataset_or_newest(dataset)
        if version is None:
            raise PairmillError("no dataset names a CLIP model yet; search by a picture of the lake.")
        recipe = self._opened.lake.dataset(str(version)).recipe
        spec = recipe.models.get("clip", "")
        if (spec, stored.model) not in self._checked:
            if model_digest(spec) != stored.model:
                raise PairmillError(
                    f"model '{spec}' is not the one whose vectors the lake holds; search by a picture of it."
                )
            self._checked.add((spec, stored.model))
        self.is_loaded = True
        return ClipTower(spec, recipe.clip.precision, side=side)
