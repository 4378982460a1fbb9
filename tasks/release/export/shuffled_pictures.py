"""Return pictures in the order of a shuffled export, by an external shuffle: read them in stored order into buckets.

A bucket is one file of the export, whose rows follow each other in the shuffled order. A pass reads the shards one
after another and appends each picture to the temporary file of its bucket. No picture is looked up by itself.
"""

import os
import shutil
import struct
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO, Self

import numpy as np

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.side_folders import spill_parent
from pairmill.catalog.queries.export.exports import by_shard
from pairmill.catalog.terms.error import PairmillError
from pairmill.tasks.release.export.pictures import Paths, Row, stored_pictures

# Open temporary files of a pass: a process may open 1,024 files on most systems, 256 on macOS.
BUCKETS = 200
FREE_SHARE = 2  # a pass fills at most one part in 2 of the free disk
_HEAD = struct.Struct("<qq")  # the row's number and the length of its picture


class ShuffledPictures:
    """External shuffle of an export's pictures: `read` returns those of one file of the export after another.

    A pass takes as many files as half the free disk beside the lake has room for, at most BUCKETS. Thirty million
    pictures of 100 KB are 3 TB in 3,000 files: 15 passes of 200 GB, each of which reads all shards. The order does not
    depend on the passes. Memory is one file's pictures, 1 GB at most. The temporary files have no names, so a killed
    process leaves none; an export that goes on begins its first pass at the first missing file.

    The lake has the numbered rows of `catalog.queries.export.exports.gather`. ``ends``: the number of the last row of
    each file, plus 1. ``sizes``: an upper bound of the bytes of each row. ``paths``: the pictures' files by shard.
    """

    def __init__(self, lake: Lake, ends: Sequence[int], sizes: np.ndarray, paths: Paths) -> None:
        self._lake, self._paths = lake, paths
        self._ends = np.array([0, *ends], np.int64)
        self._bytes = np.concatenate([[0], np.cumsum(sizes)])[self._ends]  # before each file
        beside = spill_parent(lake)  # of a local lake, where the disk has most room
        self._folder = str(beside) if os.access(beside, os.W_OK) else tempfile.gettempdir()
        self._open = ExitStack()
        self._buckets: dict[int, IO[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def read(self, number: int, rows: list[Row]) -> Iterator[tuple[Row, bytes]]:
        """Yield the ``rows`` of file ``number`` in order, each with its picture's bytes. Each file can be read once.

        Raises PairmillError when a picture's bytes are gone or damaged, or the temporary folder is full.
        """
        if number not in self._buckets:
            self._pass(number)
        with self._buckets.pop(number) as bucket:
            with self._explaining_full():
                bucket.seek(0)  # writes what is still in memory
            found = dict(_records(bucket))
        first = int(self._ends[number])
        for n, row in enumerate(rows, first):
            yield row, found.pop(n)

    def _pass(self, number: int) -> None:
        """Fill the buckets of file ``number`` and of as many behind it as a pass takes."""
        room = shutil.disk_usage(self._folder).free // FREE_SHARE
        fitting = int(np.searchsorted(self._bytes, self._bytes[number] + room, side="right")) - 1
        last = min(max(fitting, number + 1), number + BUCKETS, len(self._ends) - 1)
        self._open.close()
        self._buckets = {n: self._open.enter_context(self._temporary()) for n in range(number, last)}
        for shard, numbers, shas in by_shard(self._lake, int(self._ends[number]), int(self._ends[last])):
            self._sort_in(shard, numbers, shas)

    def _sort_in(self, shard: str, numbers: list[int], shas: list[str]) -> None:
        """Append the pictures of one shard to their buckets."""
        wanted: dict[str, list[int]] = defaultdict(list)
        for n, sha in zip(numbers, shas, strict=True):
            wanted[sha].append(n)
        for sha, data in stored_pictures(shard, shas, self._paths):
            for n in wanted[sha]:
                bucket = self._buckets[int(np.searchsorted(self._ends, n, side="right")) - 1]
                with self._explaining_full():
                    bucket.write(_HEAD.pack(n, len(data)))
                    bucket.write(data)

    def _temporary(self) -> IO[bytes]:
        """Open a temporary file without a name."""
        with self._explaining_full():
            return tempfile.TemporaryFile(dir=self._folder)

    @contextmanager
    def _explaining_full(self) -> Iterator[None]:
        """Convert an OSError to a PairmillError that names the folder in which the shuffle needs room."""
        try:
            yield
        except OSError as error:
            raise PairmillError(
                f"the shuffle cannot write its temporary files in '{self._folder}' ({error.strerror}). It needs room "
                "for one file of the export there, 1 GB; more makes it faster. Make room, and run the same command "
                "again."
            ) from error


def _records(bucket: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield (row number, bytes) of a bucket in the order of writing."""
    while head := bucket.read(_HEAD.size):
        n, size = _HEAD.unpack(head)
        yield n, bucket.read(size)
