"""Read the original bytes of a work item's pictures, a bounded number at a time."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import fsspec
import pyarrow.parquet as pq

from catalog.worklist import WorkItem
from ops.fault import Fault
from ops.read.referenced import Reference, contents

CHUNK = 64  # pictures held as bytes at once: at 100 KB each 6 MB, at the largest allowed (50 MB) 3 GB


def payloads(item: WorkItem, chunk: int = CHUNK) -> Iterator[tuple[list[str], list[bytes | Fault]]]:
    """Yield (sha256s, bytes) for the item's keys, in file order, at most ``chunk`` rows at a time.

    The next chunk is read while the caller works on this one. A Fault stands for bytes that the lake only refers to
    and that are not there any more; SourceError says that their source is out of reach.
    """
    with ThreadPoolExecutor(1) as reader:
        chunks = _chunks(item, chunk)
        upcoming = reader.submit(next, chunks, None)
        while (current := upcoming.result()) is not None:
            upcoming = reader.submit(next, chunks, None)
            yield current


def _chunks(item: WorkItem, chunk: int) -> Iterator[tuple[list[str], list[bytes | Fault]]]:
    wanted = set(item.keys)
    for path in item.paths:
        filesystem, local = fsspec.core.url_to_fs(path)
        with filesystem.open(local, "rb") as file:
            for batch in pq.ParquetFile(file).iter_batches(
                chunk, columns=["sha256", "bytes", "uri", "offset", "length"]
            ):
                rows = [row for row in batch.to_pylist() if row["sha256"] in wanted]
                wanted.difference_update(row["sha256"] for row in rows)
                if rows:
                    yield [row["sha256"] for row in rows], _bytes(rows)
                if not wanted:
                    return


def _bytes(rows: list[dict]) -> list[bytes | Fault]:
    columns = ("sha256", "uri", "offset", "length")
    referred = [Reference(*(row[name] for name in columns)) for row in rows if row["bytes"] is None]
    found = iter(contents(referred))
    return [next(found) if row["bytes"] is None else row["bytes"] for row in rows]
