"""Read the original bytes of rows' images, all or an error."""

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.terms.error import PairmillError
from pairmill.ops.fault import Fault
from pairmill.ops.read.places.tree import SourceError
from pairmill.tasks.run.items.payloads import payloads

Row = dict[str, Any]
Paths = dict[str, tuple[str, ...]]  # the files with the pictures' bytes, by shard
# Yields each row of one file of an export, in order, with its picture's bytes.
Pictured = Callable[[list[Row]], Iterator[tuple[Row, bytes]]]


def with_pictures(rows: list[Row], paths: Paths) -> Iterator[tuple[Row, bytes]]:
    """Yield each row, sorted by shard, with its image's bytes; ``paths`` are as for `pictures`, and so are the errors.

    Memory is the images that these rows take from one shard.
    """
    for shard, group in groupby(rows, key=lambda row: row["shard"]):
        of_shard = list(group)
        found = pictures(shard, (row["sha256"] for row in of_shard), paths)
        for row in of_shard:
            yield row, found[row["sha256"]]


def pictures(shard: str | None, sha256s: Iterable[str], paths: Paths) -> dict[str, bytes]:
    """Return the bytes of images of one shard, by sha256; errors are those of `stored_pictures`."""
    return dict(stored_pictures(shard, sha256s, paths))


def stored_pictures(shard: str | None, sha256s: Iterable[str], paths: Paths) -> Iterator[tuple[str, bytes]]:
    """Yield (sha256, bytes) of each of these images of one shard once, in the order of the shard's files.

    Raises PairmillError when an image's bytes are gone, damaged or cannot be read.
    """
    keys = tuple(sorted(set(sha256s)))
    n_left = len(keys)
    for sha, data in _payloads(WorkItem(shard or "", keys, paths.get(shard or "", ()))):
        if isinstance(data, Fault):
            raise PairmillError(f"{data.detail}. Put them back, then run the same again.")
        yield sha, data
        n_left -= 1
        if not n_left:
            return


def _payloads(item: WorkItem) -> Iterator[tuple[str, bytes | Fault]]:
    """Yield the item's payloads one by one. Raise PairmillError if its files cannot be read."""
    try:
        for shas, datas in payloads(item):
            yield from zip(shas, datas, strict=True)
    except (OSError, SourceError) as error:
        raise PairmillError(
            f"the pictures of shard '{item.shard}' cannot be read ({type(error).__name__}: {error}). Check the lake's "
            "data path, or the source where the lake only refers to it, then run the same again."
        ) from error
