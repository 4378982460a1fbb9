"""Hold what the browser's pages read: a lake, its galleries, which are built in the background, and thumbnails."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from pairmill.catalog.pending.contents import home_of
from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.api.answer_types import Dataset, Gallery, ImageSet
from pairmill.flows.api.opened_lake import OpenLake, open_lake
from pairmill.tasks.release.gallery.thumbnail_cache import ThumbnailCache

PATIENCE = 0.7  # seconds that a page waits for its gallery before it says that the lake is being read


class BrowsedLake:
    """A lake opened for reading by three connections: one answers pages, one builds galleries, one reads pictures.

    Each connection serves one thread at a time, so a gallery that takes seconds to build delays no page. Readers do
    not block a run that commits.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.lake = open_lake(uri)
        self._builder = ThreadPoolExecutor(1)
        self._lock = threading.Lock()
        self._built: dict[str, tuple[object, Future[Gallery]]] = {}
        self._last: dict[str, Gallery] = {}
        self._building: OpenLake | None = None
        self._changed: tuple[object, ImageSet] | None = None
        self._thumbnails: ThumbnailCache | None = None
        self._pictures: OpenLake | None = None
        self.closing: list[Callable[[], None]] = []

    def versions(self) -> list[Dataset]:
        """Return every dataset version, the newest first."""
        found = [each.version for each in self.lake.datasets()]
        return sorted(found, key=lambda each: each.created_at, reverse=True)

    def dataset(self, name: str) -> Dataset | None:
        """Return the dataset ``name``, None for ''. Raise PairmillError if there is none."""
        return self.lake.dataset(name).version if name else None

    def gallery(self, name: str, is_scroll: bool = False) -> Gallery | None:
        """Return the gallery of dataset ``name`` ('' for the whole lake), None while it is being built.

        ``is_scroll``: later pages of a gallery come from the gallery that served the first. Otherwise a lake with new
        commits is read again, and the former gallery serves until that is done.
        """
        with self._lock:
            if is_scroll and name in self._last:
                return self._last[name]
            dataset = self.dataset(name)
            state = (str(dataset), dataset.content_digest, dataset.amended) if dataset else self.lake.newest_commit
            if name not in self._built or self._built[name][0] != state:
                self._built[name] = state, self._builder.submit(partial(self._build, name))
            future = self._built[name][1]
        try:
            built = future.result(PATIENCE)
        except TimeoutError:
            return self._last.get(name)
        except Exception:
            with self._lock:
                self._built.pop(name, None)  # the next page tries again
            raise
        with self._lock:
            self._last[name] = built
        return built

    def changed(self, since: str, until: str, change: str) -> ImageSet | None:
        """Return the images that differ between two versions by 'KIND:CAUSE', None for ''. Kept for later pages."""
        versions = self.dataset(since), self.dataset(until)
        if not change:
            return None
        if not all(versions):
            raise PairmillError("this address names no two versions; open the gallery from Compare.")
        with self._lock:
            asked = (*((str(each), each.run_id) for each in versions if each), change)
            if self._changed is None or self._changed[0] != asked:
                kind, _, cause = change.partition(":")
                before, after = (each for each in versions if each)
                self._changed = asked, self.lake.differing(str(before), str(after), kind, cause)
            return self._changed[1]

    @property
    def thumbnails(self) -> ThumbnailCache:
        """The thumbnails, with a connection of their own."""
        with self._lock:
            if self._thumbnails is None:
                self._pictures = open_lake(self.uri)
                self._thumbnails = ThumbnailCache(self._pictures.lake)
            return self._thumbnails

    def shard_of(self, sha256: str) -> str:
        """Return the home shard of a picture, '' if the lake does not have it."""
        with self._lock:
            galleries = list(self._last.values())
        known = (gallery.shards([sha256]).get(sha256, "") for gallery in galleries)
        if shard := next(filter(None, known), ""):
            return shard
        return home_of(self.lake.lake, sha256)

    def close(self) -> None:
        """Wait for the gallery that is being built, and close everything."""
        self._builder.shutdown(cancel_futures=True)
        for close in self.closing:
            close()
        for gallery in self._last.values():
            gallery.close()
        for lake in (self._building, self._pictures, self.lake):
            if lake:
                lake.close()

    def _build(self, dataset: str) -> Gallery:
        if self._building is None:
            self._building = open_lake(self.uri)
        return self._building.gallery(dataset)
