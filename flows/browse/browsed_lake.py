"""Hold an open lake for the browser's pages: connections, galleries built in the background, and thumbnails."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from pairmill.catalog.pending.contents import home_of
from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.api.answer_types import Dataset, Gallery, ImageSet
from pairmill.flows.api.opened_lake import OpenLake, open_lake
from pairmill.flows.browse.background import Background
from pairmill.tasks.release.gallery.thumbnails import ThumbnailCache

LOOKED_SECONDS = 1.0  # between two looks for a removal
IDLE_SECONDS = 10.0  # the same while nobody asks for a page
PATIENCE = 0.7  # seconds that a page waits for its gallery before it says that the lake is being read


class BrowsedLake:
    """A lake opened for reading, with a connection for each purpose, such as pages and galleries.

    A connection serves one thread at a time, so a gallery that takes seconds to build on its own delays no page.
    Readers do not block a run that commits.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.lake = open_lake(uri)
        self._opened = {"pages": self.lake}
        self._lock = threading.RLock()
        self._opening = threading.Lock()  # not _lock: opening a lake on S3 takes seconds, in which pages are answered
        self._galleries: Background[Gallery] = Background()
        self._last: dict[str, Gallery] = {}
        self.newest: dict[str, Dataset | None] = {}  # by name, the version of its last first page
        self._thumbnails: ThumbnailCache | None = None
        self._models: dict[tuple[str, str], tuple[tuple[str, ...], bool]] = {}
        self._changed: tuple[object, ImageSet] | None = None
        self._removal, self._looked = self.lake.newest_removal, time.monotonic()
        self._ended = threading.Event()
        self.forgetting: list[Callable[[], None]] = [self._galleries.forget]
        self.closing: list[Callable[[], None]] = [self._ended.set, self._galleries.close]

    def connection(self, purpose: str) -> OpenLake:
        """Return the lake's connection for ``purpose``, opened at the first call for it; `close` closes all."""
        with self._opening:
            if purpose not in self._opened:
                self._opened[purpose] = open_lake(self.uri)
            return self._opened[purpose]

    def forget_removed(self) -> None:
        """Clear all caches if another process has removed items from the lake; looks at most once a second."""
        with self._lock:
            if time.monotonic() - self._looked < LOOKED_SECONDS:
                return
            self._looked = time.monotonic()
        newest = self.connection("removals").newest_removal
        with self._lock:
            if newest == self._removal:
                return
        for forget in self.forgetting:
            forget()
        with self._lock:  # last: until then a page may find a gallery that is not forgotten yet
            self._removal, self._changed = newest, None
            self._last.clear()

    def watch(self) -> None:
        """Start a thread that calls `forget_removed` every IDLE_SECONDS, also without requests, until `close`."""

        def look() -> None:
            while not self._ended.wait(IDLE_SECONDS):
                with suppress(PairmillError):  # the next page says it
                    self.forget_removed()

        threading.Thread(target=look, name="removals", daemon=True).start()

    def versions(self) -> list[Dataset]:
        """Return every dataset version, the newest first."""
        found = [each.version for each in self.lake.datasets()]
        return sorted(found, key=lambda each: each.created_at, reverse=True)

    def dataset(self, name: str) -> Dataset | None:
        """Return the version that ``name`` (NAME or NAME@VERSION) refers to, None for ''.

        Raises PairmillError if there is none.
        """
        return self.lake.dataset(name).version if name else None

    def dataset_or_newest(self, name: str) -> Dataset | None:
        """Return the version that ``name`` refers to, for '' the newest of all; None if nothing is published."""
        return self.dataset(name) or next(iter(self.versions()), None)

    def models(self, version: Dataset | None) -> tuple[tuple[str, ...], bool]:
        """Return which small shipped models made a version's scores and texts, and whether several captioners did."""
        if version is None:
            return (), False
        if (key := (str(version), version.run_id)) not in self._models:
            several = len(self.lake.dataset(str(version)).recipe.captioned_by) > 1
            self._models[key] = version.demo_weights(self.lake.lake), several
        return self._models[key]

    def gallery(self, name: str, is_scroll: bool = False) -> Gallery | None:
        """Return the gallery of version ``name`` ('' for the whole lake), None while it is being built.

        ``is_scroll``: return the gallery that served the first page. Otherwise a lake with new commits is read again,
        and the former gallery is returned until the new one is built.
        """
        with self._lock:
            if is_scroll and name in self._last:
                return self._last[name]
            dataset, removal = self.dataset(name), self._removal
            self.newest[name] = dataset
            state = (str(dataset), dataset.content_digest, dataset.amended) if dataset else self.lake.newest_commit
        built = self._galleries.find(name, state, lambda: self.connection("galleries").gallery(name), PATIENCE)
        with self._lock:
            if built is not None and removal == self._removal:
                self._last[name] = built
            return self._last.get(name)

    def changed(self, since: str, until: str, change: str) -> ImageSet | None:
        """Return the images that differ between two versions by ``change``, 'KIND:CAUSE'; None if it is ''."""
        if not change:
            return None
        before, after = self.dataset(since), self.dataset(until)
        if before is None or after is None:
            raise PairmillError("this address names no two versions; open the gallery from Compare.")
        asked = str(before), before.run_id, str(after), after.run_id, change
        with self._lock:
            if self._changed is None or self._changed[0] != asked:
                kind, _, cause = change.partition(":")
                self._changed = asked, self.lake.differing(str(before), str(after), kind, cause)
            return self._changed[1]

    @property
    def thumbnails(self) -> ThumbnailCache:
        """Cache of the lake's thumbnails, which reads pictures by a connection of its own."""
        with self._lock:
            if self._thumbnails is None:
                self._thumbnails = ThumbnailCache(self.connection("pictures").lake)
            return self._thumbnails

    def shard_of(self, sha256: str) -> str:
        """Return the id of a picture's home shard, '' if the lake does not have the picture."""
        with self._lock:
            galleries = list(self._last.values())
        known = (gallery.shards([sha256]).get(sha256, "") for gallery in galleries)
        return next(filter(None, known), "") or home_of(self.lake.lake, sha256)

    def close(self) -> None:
        """Wait for the gallery that is being built, then close all galleries and connections."""
        for close in self.closing:
            close()
        for opened in (*self._last.values(), *self._opened.values()):
            opened.close()
