"""Read the original bytes of a work item's pictures, a bounded number at a time."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import fsspec
import pyarrow.parquet as pq

from catalog.pending.item import WorkItem
from ops.fault import Fault
from ops.read.places.referenced import Reference, contents
from ops.read.places.tree import SourceError

CHUNK = 64  # pictures held as bytes at once: at 100 KB each 6 MB, at the largest allowed (50 MB) 3 GB


def payloads(item: WorkItem, chunk: int = CHUNK) -> Iterator[tuple[list[str], list[bytes | Fault]]]:
    """Yield (sha256s, bytes) for the item's keys, in file order, at most ``chunk`` rows at a time.

    The next chunk is read while the caller works on this one. Bytes that the lake only refers to and that are at none
    of their places any more come last, as Faults. Raises SourceError when a source cannot be reached.
    """
    with ThreadPoolExecutor(1) as reader:
        chunks = _chunks(item, chunk)
        upcoming = reader.submit(next, chunks, None)
        while (current := upcoming.result()) is not None:
            upcoming = reader.submit(next, chunks, None)
            yield current


def _chunks(item: WorkItem, chunk: int) -> Iterator[tuple[list[str], list[bytes | Fault]]]:
    wanted = set(item.keys)
    lost: dict[str, Fault] = {}
    unread: dict[str, SourceError] = {}
    for path in item.paths:
        filesystem, local = fsspec.core.url_to_fs(path)
        with filesystem.open(local, "rb") as file:
            for batch in pq.ParquetFile(file).iter_batches(
                chunk, columns=["sha256", "bytes", "uri", "offset", "length"]
            ):
                rows = [row for row in batch.to_pylist() if row["sha256"] in wanted]
                good: dict[str, bytes | Fault] = {}
                for row, data in zip(rows, _bytes(rows), strict=True):
                    if isinstance(data, Fault):
                        lost[row["sha256"]] = data
                    elif isinstance(data, SourceError):
                        unread[row["sha256"]] = data
                    else:
                        good[row["sha256"]] = data
                wanted -= good.keys()
                if good:
                    yield list(good), list(good.values())
                if not wanted:
                    return
    if out_of_reach := wanted & unread.keys():
        raise unread[min(out_of_reach)]
    if nowhere := [sha for sha in item.keys if sha in wanted and sha in lost]:
        yield nowhere, [lost[sha] for sha in nowhere]


def _bytes(rows: list[dict]) -> list[bytes | Fault | SourceError]:
    columns = ("sha256", "uri", "offset", "length")
    referred = [Reference(*(row[name] for name in columns)) for row in rows if row["bytes"] is None]
    found = iter(contents(referred))
    return [next(found) if row["bytes"] is None else row["bytes"] for row in rows]
