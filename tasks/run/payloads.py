"""Read the original bytes of a work item's pictures, a bounded number at a time, each checked against its id."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow.parquet as pq

from catalog.pending.item import WorkItem
from catalog.terms.ids import content_id
from ops.fault import Fault
from ops.read.places.referenced import Reference, contents
from ops.read.places.tree import SourceError
from tasks.run.rows import opened

CHUNK = 64  # pictures held as bytes at once: at 100 KB each 6 MB, at the largest allowed (50 MB) 3 GB


def payloads(item: WorkItem, chunk: int = CHUNK) -> Iterator[tuple[list[str], list[bytes | Fault]]]:
    """Yield (sha256s, bytes) for the item's keys, in file order, at most ``chunk`` rows at a time; every key once.

    The next chunk is read while the caller works on this one. What is nowhere comes last, as Faults: 'damaged' where
    the lake's own bytes do not hash to their id, 'missing' where it only refers to them and no place has them any more.
    Raises SourceError when a source cannot be reached, PairmillError when a whole file is gone or damaged.
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
        with opened(path) as file:
            columns = ["sha256", "bytes", "uri", "offset", "length"]
            for batch in pq.ParquetFile(file).iter_batches(chunk, columns=columns):
                rows = [row for row in batch.to_pylist() if row["sha256"] in wanted]
                good: dict[str, bytes | Fault] = {}
                for row, data in zip(rows, _bytes(rows, path), strict=True):
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
    if nowhere := [sha for sha in item.keys if sha in wanted]:
        yield nowhere, [lost.get(sha) or _absent(sha, item) for sha in nowhere]


def _bytes(rows: list[dict], path: str) -> list[bytes | Fault | SourceError]:
    columns = ("sha256", "uri", "offset", "length")
    referred = [Reference(*(row[name] for name in columns)) for row in rows if row["bytes"] is None]
    found = iter(contents(referred))
    return [next(found) if row["bytes"] is None else _checked(row["sha256"], row["bytes"], path) for row in rows]


def _checked(sha256: str, data: bytes, path: str) -> bytes | Fault:
    if content_id(data) == sha256:
        return data
    return Fault(sha256, "damaged", f"the bytes of picture {sha256} in {path} are damaged: they have another hash")


def _absent(sha256: str, item: WorkItem) -> Fault:
    places = ", ".join(item.paths) or "any file"
    return Fault(sha256, "damaged", f"the bytes of picture {sha256} are not in {places} of shard '{item.shard}'")
