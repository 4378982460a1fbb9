"""Measure `pairmill browse` over a lake of synthetic images: ``python -m infra.bench.browse --images 1000000``.

Prints the seconds to build the gallery's table, which happens once, and to answer pages from it, and the memory of the
process. The vectors to search are random unit vectors of 512 numbers, as many as images.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from infra.bench.made_lake import fill
from pairmill.catalog.ask.gallery_file import gallery_file
from pairmill.catalog.ask.gallery_query import Choice, Gallery, SortOrder
from pairmill.catalog.lake.opening import create_or_open
from pairmill.ops.whole.scan import most_similar

FOUND = 600  # as flows/browse/picture_search.py


def main() -> None:
    """Make the lake, open it as the browser does, and print a row per measurement."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--images", type=int, default=1_000_000)
    n = options.parse_args().images
    with tempfile.TemporaryDirectory() as folder:
        with create_or_open(f"{folder}/lake") as lake:
            fill(lake, n)
            lake.execute("INSERT INTO commits VALUES (1, 'made', 'ingest', now())")
        _measure(folder, n)


def _measure(folder: str, n: int) -> None:
    begun = time.perf_counter()
    lake = create_or_open(f"{folder}/lake", read_only=True)
    _show("open the lake", time.perf_counter() - begun)
    begun = time.perf_counter()
    gallery = Gallery(gallery_file(lake, None))
    _show(f"build the gallery of {n:,} images", time.perf_counter() - begun)
    assert gallery.count(Choice()) == n
    order, rule = SortOrder("sharpness", descending=True), Choice(where="least(width, height) >= 300")
    after = gallery.page(Choice(), order).after
    _show("first page", _median(lambda: gallery.page(Choice())))
    _show("next page, sorted by a score", _median(lambda: gallery.page(Choice(), order, after)))
    _show("page by a rule, sorted", _median(lambda: gallery.page(rule, order)))
    _show("count by a rule", _median(lambda: gallery.count(rule)))
    _search(folder, n)
    print(f"{'most memory, GB':<45} {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f}")
    gallery.close()
    lake.close()


def _search(folder: str, n: int) -> None:
    """Measure the exact scan over a memory map of random vectors."""
    path, random = Path(folder) / "vectors", np.random.default_rng(1)
    with open(path, "wb") as file:
        for start in range(0, n, 50_000):
            file.write((random.normal(size=(min(50_000, n - start), 512)) / 22.6).astype("<f2").tobytes())
    vectors = np.memmap(path, "<f2", "r", shape=(n, 512))
    query = np.asarray(vectors[n // 2], np.float32)
    _show("nearest of all vectors, exact", _median(lambda: most_similar(query, vectors, FOUND)))


def _median(body: Callable[[], object]) -> float:
    """Return the median seconds of seven calls."""
    taken = []
    for _ in range(7):
        begun = time.perf_counter()
        body()
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


def _show(what: str, seconds: float) -> None:
    print(f"{what:<45} {seconds:.3f} s", flush=True)


if __name__ == "__main__":
    main()
