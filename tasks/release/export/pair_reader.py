"""Read the pairs of a dataset version with their images, in the order of the shards that hold the images' bytes."""

from collections.abc import Iterator
from typing import Any, Self

from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.export import exports
from pairmill.tasks.release.export.pictures import with_pictures

ROWS = 256  # pairs of one query, with the images of one shard among them in memory: some 25 MB at 100 KB each

Row = dict[str, Any]


class PairReader:
    """Pairs by their number in the order of the shards and their ids, each with its image's bytes.

    Opens the lake for itself, to read, and copies the version's pairs into a temporary table that spills to disk: 1.5
    KB a pair, and some 10 s a million of them at each opening. Beyond a few million pairs, or on many machines, export
    tars instead: every process that opens a reader pays this.

    Attributes:
        size: Number of pairs.
    """

    def __init__(self, lake: str, dataset: Dataset) -> None:
        self._lake = create_or_open(lake, read_only=True)
        try:
            exports.gather(self._lake, dataset, exports.RowOrder(by_shard=True))
            self.size = len(exports.sizes(self._lake))
            self._paths = exports.picture_paths(self._lake)
        except BaseException:
            self._lake.close()
            raise

    def read(self, first: int, last: int) -> Iterator[tuple[Row, bytes]]:
        """Yield the pairs number ``first`` to ``last`` - 1, each with the original bytes of its image.

        Raises PairmillError when an image's bytes are gone, damaged or cannot be read.
        """
        for start in range(first, last, ROWS):
            rows = exports.portion(self._lake, start, min(start + ROWS, last)).to_pylist()
            yield from with_pictures(rows, self._paths)

    def close(self) -> None:
        """Drop the temporary table and close the lake."""
        exports.release(self._lake)
        self._lake.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
