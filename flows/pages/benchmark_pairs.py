"""Put each picture that is near to a benchmark's beside that picture, for the report."""

from pathlib import Path
from typing import Any

from pairmill.catalog.queries.figures.contamination_hits import SetHits
from pairmill.tasks.release.gallery.thumbnails import NONE, thumbnail

MOST_BYTES = 64 * 2**20


def with_benchmark_pictures(found: list[SetHits]) -> list[SetHits]:
    """Add ``benchmark`` to each hit: the name of its file, with ``picture`` or ``lost`` as of `thumbnails`."""
    for each in found:
        for hit in each.hits:
            hit["benchmark"] = {"name": Path(hit["file"]).name, **_shown(Path(hit["file"]))}
    return found


def _shown(file: Path) -> dict[str, Any]:
    """Return a small picture of a file. The benchmark need not be on the machine that writes the report."""
    try:
        if file.stat().st_size > MOST_BYTES:
            return NONE | {"lost": "too large"}
        return NONE | {"picture": thumbnail(file.read_bytes())}
    except OSError:
        return NONE | {"lost": "not on this machine"}
