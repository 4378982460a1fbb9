"""Measure `pairmill browse` over a lake of synthetic images: ``python -m infra.bench.browse --images 1000000``.

Images and scores are made tables, cut and published as a version. Vectors are clustered (`infra.bench.topics`), the
text tower is that of a random ViT-B-32. Pages are answered by the whole application in this process, without a browser.
Headless Chromium draws the map and a moved threshold. What happens once, the gallery's table, codes and the map, has no
target. CPU seconds are compared with the targets, which are wall seconds of two quiet cores: they are at least as many.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from infra.bench.clip import random_model
from infra.bench.measure import Row, Seconds, cpu, finish, parser, peak_mb, timed, wall
from infra.bench.report import publish_made
from infra.bench.topics import vectors
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries.gallery.gallery_query import Gallery
from pairmill.catalog.queries.gallery.image_vectors import ID_BYTES, ImageVectors
from pairmill.flows.browse.browsed_lake import BrowsedLake
from pairmill.flows.browse.picture_maps import PictureMaps
from pairmill.flows.browse.picture_search import FOUND, PictureSearch
from pairmill.flows.pages.renderer import FOLDER
from pairmill.ops.models.clip.clip import ClipTower, Side
from pairmill.ops.whole.sign_codes import most_similar, nearest
from pairmill.tasks.release.gallery.thumbnails import ThumbnailCache
from pairmill.tasks.release.gallery.vector_files import code_index
from tests.worlds.browsed import Pages, serving
from tests.worlds.chromium import tab

QUERIES = 20
AT_ONCE = 20_000
VECTORS, DIMENSION = "vectors-made.bin", 512


class MadeThumbnail(ThumbnailCache):
    """Thumbnails that are made already: one picture stands for all."""

    def find(self, sha256: str, kind: str) -> Path:
        """Return the picture."""
        return FOLDER / "static" / "lost.svg"


class MadeVectors(PictureSearch):
    """A search over made vectors: one for each distinct picture of the gallery."""

    def __init__(self, opened: BrowsedLake, stored: ImageVectors, index: Any, model: ClipTower | None) -> None:
        super().__init__(opened)
        self.opened, self._made, self._clip = opened, (stored, index), model

    def _find_vectors(self, dataset: str) -> tuple[ImageVectors, Any]:
        return self._made

    def _model(self, dataset: str, stored: ImageVectors, side: Side) -> Any:
        return self._clip


def main() -> None:
    """Make the lake, open it as the browser does, and measure."""
    options = parser(__doc__)
    options.add_argument("--images", type=int, default=1_000_000)
    options.add_argument("--made", type=Path, help="folder to make lake and model in, or that has them already")
    options.add_argument("--no-browser", action="store_true", help="leave out what is drawn in headless Chromium")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = given.made or Path(folder)
        making = multiprocessing.get_context("spawn").Process(target=_make, args=(place, given.images))
        making.start()  # in another process, whose memory is not the browser's
        making.join()
        rows = _measure(place / "lake", given)
    finish("browse", rows, given)


def _make(folder: Path, images: int) -> None:
    """Make the lake and the model if they are missing; make the vectors, and remove what the browser has stored."""
    if not (folder / "clip").exists():
        publish_made(str(folder / "lake"), images)
        (folder / "clip").mkdir()
        random_model(folder / "clip")
    shutil.rmtree(folder / "lake" / ".browse", ignore_errors=True)
    _make_vectors(folder / "lake")


def _measure(lake: Path, given: argparse.Namespace) -> list[Row]:
    """Return a row for each measurement; seconds that happen once come last."""
    opened, once = BrowsedLake(str(lake)), []
    opened._thumbnails = MadeThumbnail(opened.lake.lake)
    pages = Pages(opened)
    once.append(_row("build the gallery's table, once", timed(lambda: pages.gallery("/gallery"))))
    gallery = opened.gallery("")
    assert gallery
    stored = _stored(lake)
    once.append(_row("encode the vectors, once", timed(lambda: code_index(stored))))
    rows = _pages(pages, gallery, given.images)
    search = _search(opened, stored, lake)
    rows.append(_row("words to their nearest pictures", _words(search), 0.3, note="text tower and search"))
    like = _like(search, stored)
    mapped, seconds = _map(opened, stored, gallery)
    once.append(_row("fit the projection and place all pictures, once", seconds))
    drawn = [] if given.no_browser else [_drawn(search, given.images), *_moved(opened, pages, given.images)]
    rows += [
        mapped,
        *drawn,
        _memory(),
        _against_full_scan(stored, like),
    ]  # the full scans hold 1 GB, which a browser does not
    opened.close()
    return rows + once


def _memory() -> Row:
    """Return the row of the process's memory with all in use: the lake, the model, codes and the map.

    The peak is higher while the model loads, since the file of its weights is mapped then.
    """
    now = psutil.Process().memory_info().rss / 1e9
    note = f"mapped files included; {peak_mb() / 1000:.2f} GB for a moment, when the model loads from its mapped file"
    return Row("memory of the process, all in use", "GB", now, target="<= 2 GB", met=now <= 2, note=note)


def _pages(pages: Pages, gallery: Gallery, n: int) -> list[Row]:
    """Measure pages of the gallery, with their rendering and without thumbnails."""
    first = _median(lambda: pages.page("/gallery"))
    query = "sort=sharpness&desc=1"
    after = pages.page(f"/gallery?{query}").xpath("string(//a[@class='more']/@href)").partition("?")[2]
    rule = "where=least(width,height)>=300"
    clusters = [cluster for cluster, _ in gallery.facet("cluster")]
    return [
        _row(f"first page of {n:,} images", first, 1.0),
        _row("next page, sorted by a score", _median(lambda: pages.client.get(f"/gallery/more?{after}")), 0.05),
        _row("first page by a rule", _median(lambda: pages.page(f"/gallery?{rule}")), 1.0),
        _row(f"names of {len(clusters)} clusters, once", timed(lambda: gallery.cluster_names(clusters))),
    ]


def _search(opened: BrowsedLake, stored: ImageVectors, lake: Path) -> MadeVectors:
    """Return a search whose model is loaded."""
    model = ClipTower(f"open_clip:local-dir:{lake.parent / 'clip'}")
    model.embed_texts(["warm"])
    return MadeVectors(opened, stored, code_index(stored), model)


def _words(search: MadeVectors) -> Seconds:
    texts = iter([f"a red fox number {n} in the snow" for n in range(99)])
    return _median(lambda: search.find("", next(texts), ""))


def _like(search: MadeVectors, stored: ImageVectors) -> Seconds:
    ids = iter(stored.names(np.arange(0, len(stored.sha256s), len(stored.sha256s) // 99)))
    return _median(lambda: search.find("", "", next(ids)))


def _against_full_scan(stored: ImageVectors, like: Seconds) -> Row:
    """Compare the search by a picture with a full scan: its seconds, and the recall of the codes."""
    index = code_index(stored)
    picked = np.random.default_rng(1).integers(0, len(stored.vectors), QUERIES)
    queries = [np.asarray(stored.vectors[row], np.float32) for row in picked]
    true = [set(most_similar(query, stored.vectors, 50)) for query in queries]
    found = [nearest(index, query, stored.vectors, FOUND)[:50] for query in queries]
    recall = statistics.mean(len(each & set(other)) / 50 for each, other in zip(true, found, strict=True))
    exact = _median(lambda: most_similar(queries[0], stored.vectors, FOUND), 3)
    note = f"{like.wall:.3f} wall s, full scan {exact.wall:.3f}"
    return Row("a picture to its nearest, by codes", "CPU s", like.cpu, exact.cpu, "full scan", exact.cpu / like.cpu,
               recall, "recall >= 0.95", recall >= 0.95, note)  # fmt: skip


def _map(opened: BrowsedLake, stored: ImageVectors, gallery: Gallery) -> tuple[Row, Seconds]:
    """Return the row of the map's bytes, places and colours, and the seconds of its first making."""
    from pairmill.flows.browse.picture_maps import colours, points

    search = MadeVectors(opened, stored, code_index(stored), None)
    maps = PictureMaps(search)
    first = timed(lambda: maps.find("", gallery, 3600.0))
    maps.close()
    again = PictureMaps(search)

    def ready() -> None:
        found = again.find("", gallery, 600.0)
        assert found
        assert len(points(found)) == 4 * len(colours(found, "sharpness")[0])

    seconds = timed(ready)
    again.close()
    return _row(f"map of {len(stored.sha256s):,} points, at the server", seconds, 5.0), first


def _drawn(search: MadeVectors, n: int) -> Row:
    """Return the row of the map's drawing in headless Chromium: wall seconds of the first visit after a start.

    The projection is stored already, as for every start but the first.
    """
    found = []
    with serving(search.opened, lambda _: search) as address, tab() as shown:
        shown.open(address)
        for _ in range(3):
            shown.open(address.partition("?")[0] + "static/icon.svg")
            begun = time.perf_counter()
            shown.call("Page.navigate", url=address.partition("?")[0] + "map")
            shown.until("Number(document.querySelector('[data-map]')?.dataset.drawn) > 0")
            found.append(time.perf_counter() - begun)
        frame = float(shown.run("document.querySelector('[data-map]').dataset.frame"))
    seconds = found[0]
    note = f"{min(found[1:]):.2f} s at later visits; a frame takes {frame:.0f} ms"
    return Row(f"map of {n:,} points, drawn in Chromium", "wall s", seconds, target="<= 5 wall s", met=seconds <= 5,
               note=note)  # fmt: skip


def _moved(opened: BrowsedLake, pages: Pages, n: int) -> list[Row]:
    """Return rows of a threshold that moves, in wall seconds of Chromium, and that is let go, at the server.

    The first is the longest of 20 moves, each from the event to the frame that shows its estimate.
    """
    version = str(opened.versions()[0])
    once = timed(lambda: pages.gallery(f"/rules?dataset={version}"))
    moving = """(async () => {
      const slider = document.querySelector('[data-rule] [data-side]'), found = [];
      for (let move = 1; move <= 20; move++) {
        const begun = performance.now();
        slider.value = Number(slider.min) + (slider.max - slider.min) * move / 21;
        slider.dispatchEvent(new Event('input', {bubbles: true}));
        await new Promise((shown) => requestAnimationFrame(() => setTimeout(shown, 0)));
        found.push(performance.now() - begun);
      }
      return Math.max(...found) / 1000;
    })()"""
    with serving(opened) as address, tab() as shown:
        shown.open(address)
        shown.open(f"{address.partition('?')[0]}rules?dataset={version}")
        seconds = float(shown.run(moving))
        rule = shown.run("document.querySelector('[data-rule] [name=rule]').value")
    tried = f"/rules/try?dataset={version}&kind=image&rule={rule}&keep=least(width,height)>=300"
    pages.page(tried)  # the first trial builds the facts
    trial = _median(lambda: pages.page(tried), 3)
    return [
        Row("a moved threshold, drawn in Chromium", "wall s", seconds, target="<= 0.1 wall s", met=seconds <= 0.1),
        _row(f"a threshold that is let go: two cuts of {n:,} images", trial),
        _row("build a version's gallery and its rules, once", once),
    ]


def _make_vectors(lake: Path) -> None:
    """Write clustered vectors for the distinct pictures of the lake, in the layout of `image_vectors`."""
    with create_or_open(lake, read_only=True) as opened:
        shas = opened.table("SELECT DISTINCT sha256 FROM images ORDER BY sha256")["sha256"].to_pylist()
    path = lake / ".browse" / VECTORS
    path.parent.mkdir()
    with open(path, "wb") as file:
        file.write("".join(shas).encode())
        for start in range(0, len(shas), AT_ONCE):
            file.write(vectors(min(AT_ONCE, len(shas) - start), first=start).astype("<f2").tobytes())


def _stored(lake: Path) -> ImageVectors:
    """Map the made vectors into memory."""
    path = lake / ".browse" / VECTORS
    n = path.stat().st_size // (ID_BYTES + 2 * DIMENSION)
    found = np.memmap(path, "<f2", "r", offset=n * ID_BYTES, shape=(n, DIMENSION))
    return ImageVectors(np.memmap(path, f"S{ID_BYTES}", "r", shape=(n,)), found, "made", "made", path)


def _median(body: Callable[[], object], times: int = 7) -> Seconds:
    """Return the median CPU and wall seconds of some calls."""
    found = [timed(body) for _ in range(times)]
    return Seconds(cpu(found), wall(found))


def _row(what: str, taken: Seconds, most: float | None = None, note: str = "") -> Row:
    target = "" if most is None else f"<= {most:g} wall s"
    said = "; ".join(filter(None, (f"{taken.wall:.3f} wall s", note)))
    return Row(what, "CPU s", taken.cpu, target=target, met=None if most is None else taken.cpu <= most, note=said)


if __name__ == "__main__":
    main()
