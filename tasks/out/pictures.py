"""Read the original bytes of rows' images, all or an error."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.terms.error import PairmillError
from pairmill.ops.fault import Fault
from pairmill.ops.read.places.tree import SourceError
from pairmill.tasks.run.payloads import payloads


def with_pictures(
    rows: list[dict[str, Any]], paths: dict[str, tuple[str, ...]]
) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Yield each row, sorted by shard, with its image's bytes; ``paths`` are as for `pictures`, and so are the errors.

    Memory is the images that these rows take from one shard.
    """
    for shard, group in groupby(rows, key=lambda row: row["shard"]):
        of_shard = list(group)
        found = pictures(shard, (row["sha256"] for row in of_shard), paths)
        for row in of_shard:
            yield row, found[row["sha256"]]


def pictures(shard: str | None, sha256s: Iterable[str], paths: dict[str, tuple[str, ...]]) -> dict[str, bytes]:
    """Return the bytes of images of one shard, by sha256; ``paths`` are the files with images' bytes, by shard.

    Raises PairmillError when an image's bytes are gone, damaged or cannot be read.
    """
    keys = tuple(sorted(set(sha256s)))
    found: dict[str, bytes] = {}
    try:
        for shas, datas in payloads(WorkItem(shard or "", keys, paths.get(shard or "", ()))):
            for sha, data in zip(shas, datas, strict=True):
                if isinstance(data, Fault):
                    raise PairmillError(f"{data.detail}. Put them back, then run the same again.")
                found[sha] = data
            if len(found) == len(keys):
                break
    except (OSError, SourceError) as error:
        raise PairmillError(
            f"the pictures of shard '{shard}' cannot be read ({type(error).__name__}: {error}). Check the lake's data "
            "path, or the source where the lake only refers to it, then run the same again."
        ) from error
    return found
