"""Read the pictures of an export's rows, shard by shard."""

from collections.abc import Iterator
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
    """Yield each row, sorted by shard, with its picture's bytes; ``paths`` are the files with the bytes, by shard.

    Memory is the pictures that these rows take from one shard. Raises PairmillError when a picture's bytes are gone or
    cannot be read.
    """
    for shard, group in groupby(rows, key=lambda row: row["shard"]):
        of_shard = list(group)
        pictures = _pictures(shard, {row["sha256"] for row in of_shard}, paths)
        for row in of_shard:
            yield row, pictures[row["sha256"]]


def _pictures(shard: str | None, wanted: set[str], paths: dict[str, tuple[str, ...]]) -> dict[str, bytes]:
    """Read the wanted pictures of one shard, by sha256."""
    keys = tuple(sorted(wanted))
    found: dict[str, bytes] = {}
    try:
        for shas, datas in payloads(WorkItem(shard or "", keys, paths.get(shard or "", ()))):
            for sha, data in zip(shas, datas, strict=True):
                if isinstance(data, Fault):
                    raise PairmillError(f"{data.detail}. Put them back, then run the same export again.")
                found[sha] = data
            if len(found) == len(keys):
                break
    except (OSError, SourceError) as error:
        raise PairmillError(
            f"the pictures of shard '{shard}' cannot be read ({type(error).__name__}: {error}). Check the lake's data "
            "path, or the source where the lake only refers to it, then run the same export again."
        ) from error
    return found
