"""Read the original image bytes of rows, and a version's pairs with their images; a missing image is an error."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.export import exports
from pairmill.catalog.queries.export.selected_pairs import Selection
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.ids import content_id
from pairmill.ops.fault import Fault
from pairmill.ops.image.private_metadata import remove_metadata
from pairmill.ops.read.places.tree import SourceError
from pairmill.tasks.run.items.payloads import payloads

ROWS = 256  # pairs of one query, with the images of one shard among them in memory: some 25 MB at 100 KB each
Row = dict[str, Any]
Paths = dict[str, tuple[str, ...]]  # the files with the pictures' bytes, by shard
Metadata = Literal["stripped", "original"]  # of exported pictures
EXPORTED = ("exported_sha256", "picture_metadata")  # columns that `exported` adds
# Yields each row of one file of an export, in order, with its picture's bytes.
Pictured = Callable[[list[Row]], Iterator[tuple[Row, bytes]]]


@dataclass(frozen=True)
class PairReader:
    """Reader of a version's ``size`` pairs by number, in the order of shards, then image ids; see `reading_pairs`."""

    lake: Lake
    size: int
    paths: Paths

    def read(self, first: int, last: int) -> Iterator[tuple[Row, bytes]]:
        """Yield the pairs with the numbers ``first`` to ``last`` - 1, each with the original bytes of its image.

        Raises PairmillError when an image's bytes are gone, damaged or cannot be read.
        """
        for start in range(first, last, ROWS):
            rows = exports.portion(self.lake, start, min(start + ROWS, last)).to_pylist()
            yield from with_pictures(rows, self.paths)


@contextmanager
def reading_pairs(uri: str, dataset: Dataset) -> Iterator[PairReader]:
    """Open the lake to read the version's pairs with their images, during the ``with`` block.

    Copies the pairs into a temporary table that spills to disk: 1.5 KB a pair, and some 10 s a million pairs at each
    opening, in every process that opens a reader. Beyond a few million pairs, or on many machines, export tars instead.
    """
    with create_or_open(uri, read_only=True) as lake:
        exports.gather(lake, Selection((dataset,)), exports.RowOrder(by_shard=True))
        yield PairReader(lake, len(exports.sizes(lake)), exports.picture_paths(lake))


def with_pictures(rows: list[Row], paths: Paths) -> Iterator[tuple[Row, bytes]]:
    """Yield each of ``rows``, which must be sorted by shard, with its image's bytes; errors as of `stored_pictures`.

    Memory is the images that these rows take from one shard.
    """
    for shard, group in groupby(rows, key=lambda row: row["shard"]):
        of_shard = list(group)
        found = dict(stored_pictures(shard, (row["sha256"] for row in of_shard), paths))
        for row in of_shard:
            yield row, found[row["sha256"]]


def exported(pictures: Iterable[tuple[Row, bytes]], metadata: Metadata) -> Iterator[tuple[Row, bytes]]:
    """Yield each row and picture as it is exported: without private metadata, unless ``metadata`` is 'original'.

    Adds to the row `exported_sha256`, the id of the exported bytes, and `picture_metadata`: 'stripped', or 'original'
    where the bytes are the source's because nothing was to be removed by choice or nothing can be.
    """
    for row, data in pictures:
        cleaned = remove_metadata(data) if metadata == "stripped" else None
        shown = data if cleaned is None else cleaned
        state: Metadata = "original" if cleaned is None else "stripped"
        yield row | {"exported_sha256": content_id(shown), "picture_metadata": state}, shown


def stored_pictures(shard: str | None, sha256s: Iterable[str], paths: Paths) -> Iterator[tuple[str, bytes]]:
    """Yield (sha256, bytes) of each distinct image of ``sha256s`` in one shard, in the order of the shard's files.

    Raises PairmillError when an image's bytes are gone, damaged or cannot be read.
    """
    keys = tuple(sorted(set(sha256s)))
    n_left = len(keys)
    try:
        for shas, datas in payloads(WorkItem(shard or "", keys, paths.get(shard or "", ()))):
            for sha, data in zip(shas, datas, strict=True):
                if isinstance(data, Fault):
                    raise PairmillError(f"{data.detail}. Put them back, then run the same again.")
                yield sha, data
                n_left -= 1
                if not n_left:
                    return
    except (OSError, SourceError) as error:
        raise PairmillError(
            f"the pictures of shard '{shard or ''}' cannot be read ({type(error).__name__}: {error}). Check the lake's "
            "data path, or the source where the lake only refers to it, then run the same again."
        ) from error
