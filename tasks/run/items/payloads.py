"""Read the original bytes of a work item's images in bounded chunks, and check each image against its id."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.terms.ids import content_id
from pairmill.ops.fault import Fault
from pairmill.ops.read.places.referenced import Reference, contents
from pairmill.ops.read.places.tree import SourceError
from pairmill.tasks.run.items import row_reports
from pairmill.tasks.run.items.rows import open_parquet

# Images in memory at once, and their bytes: 6 MB at 100 KB each; the largest allowed (50 MB) are read one by one.
CHUNK, CHUNK_BYTES = 64, 32_000_000
# The most bytes of one model batch, which is filled from several chunks.
BATCH_BYTES = 256_000_000
COLUMNS = ["sha256", "bytes", "uri", "offset", "length"]


def payloads(item: WorkItem, chunk: int = CHUNK) -> Iterator[tuple[list[str], list[bytes | Fault]]]:
    """Yield (sha256s, bytes) of the item's keys in file order, at most ``chunk`` images at a time; every key once.

    The next chunk is read while the caller processes the current one. Keys without usable bytes come last, with a Fault
    each: 'damaged' if the lake's own bytes do not hash to their id, 'missing' if the lake only refers to a source that
    no longer has them. Raises SourceError when a source cannot be reached, PairmillError when a whole file is gone or
    damaged.
    """
    with ThreadPoolExecutor(1) as reader:
        chunks = (each for home in item.by_shard for each in _chunks(home, chunk))
        upcoming = reader.submit(next, chunks, None)
        while (current := upcoming.result()) is not None:
            upcoming = reader.submit(next, chunks, None)
            row_reports.begin("", row_reports.item_seconds(len(current[0])))
            yield current


def batches(item: WorkItem, rows: int) -> Iterator[tuple[list[str], list[bytes | Fault]]]:
    """Yield the (sha256s, bytes) of `payloads` regrouped into batches of ``rows`` images.

    A batch is smaller if it is the last, or if its images reach BATCH_BYTES together.
    """
    shas: list[str] = []
    datas: list[bytes | Fault] = []
    size = 0
    for more, given in payloads(item, min(rows, CHUNK)):
        for sha, data in zip(more, given, strict=True):
            shas.append(sha)
            datas.append(data)
            size += 0 if isinstance(data, Fault) else len(data)
            if len(shas) == rows or size >= BATCH_BYTES:
                yield shas, datas
                shas, datas, size = [], [], 0
    if shas:
        yield shas, datas


def _chunks(item: WorkItem, chunk: int) -> Iterator[tuple[list[str], list[bytes | Fault]]]:
    """Yield the chunks of one shard, then the keys that no file has bytes for."""
    wanted = set(item.keys)
    lost: dict[str, Fault] = {}
    unread: dict[str, SourceError] = {}
    for path in item.paths:
        with open_parquet(path) as file:
            for batch in _batches(file, chunk, wanted):
                rows = [row for row in batch.to_pylist() if row["sha256"] in wanted]
                good: dict[str, bytes | Fault] = {}
                for row, data in zip(rows, bytes_of_rows(rows, path), strict=True):
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
        places = f"{', '.join(item.paths) or 'any file'} of shard '{item.shard}'"
        faults = (Fault(sha, "damaged", f"the bytes of picture {sha} are not in {places}") for sha in nowhere)
        yield nowhere, [lost.get(fault.item) or fault for fault in faults]


def _batches(file: Any, chunk: int, wanted: set[str]) -> Iterator[pa.RecordBatch]:
    """Read row groups with ``wanted`` keys, ``chunk`` rows at once, fewer if these may exceed CHUNK_BYTES."""
    metadata = pq.read_metadata(file)
    groups = _groups_of(file, metadata, wanted)
    largest = {group: _largest(metadata.row_group(group)) for group in groups}
    if chunk * max(largest.values(), default=0) <= CHUNK_BYTES:
        yield from pq.ParquetFile(file, metadata=metadata).iter_batches(chunk, row_groups=groups, columns=COLUMNS)
        return
    table = pq.ParquetFile(file, metadata=metadata, buffer_size=2**20)
    for group, length in largest.items():
        rows = max(1, min(chunk, CHUNK_BYTES // max(1, length)))
        yield from table.iter_batches(rows, row_groups=[group], columns=COLUMNS)


def _groups_of(file: Any, metadata: Any, wanted: set[str]) -> list[int]:
    """Return the row groups that contain a wanted image, by reading the id column alone.

    An item of 500 of a shard's 10,000 images reads 65 MB instead of a GB, because its keys are neighbours in the file.
    An item with over half of a file's rows reads all row groups.
    """
    every = list(range(metadata.num_row_groups))
    if len(every) == 1 or 2 * len(wanted) > metadata.num_rows:
        return every
    table = pq.ParquetFile(file, metadata=metadata)
    ids = (table.read_row_group(group, columns=["sha256"])["sha256"] for group in every)
    return [group for group, held in enumerate(ids) if not wanted.isdisjoint(held.to_pylist())]


def _largest(group: Any) -> int:
    """Return the length of a row group's largest image by its statistics; without them, the row group's size."""
    columns = (group.column(index) for index in range(group.num_columns))
    length = next(column for column in columns if column.path_in_schema == "length")
    has_statistics = length.is_stats_set and length.statistics.has_min_max
    return int(length.statistics.max) if has_statistics else group.total_byte_size


def bytes_of_rows(rows: list[dict], path: str) -> list[bytes | Fault | SourceError]:
    """Return the bytes of each row, read from its source where the row only refers to one.

    A row whose bytes cannot be read gets a Fault, or a SourceError where the source cannot be reached.
    """
    columns = ("sha256", "uri", "offset", "length")
    referred = [Reference(*(row[name] for name in columns)) for row in rows if row["bytes"] is None]
    found = iter(contents(referred))
    return [next(found) if row["bytes"] is None else _check_bytes(row["sha256"], row["bytes"], path) for row in rows]


def _check_bytes(sha256: str, data: bytes, path: str) -> bytes | Fault:
    """Return ``data`` if it hashes to ``sha256``, else a Fault."""
    if content_id(data) == sha256:
        return data
    return Fault(sha256, "damaged", f"the bytes of picture {sha256} in {path} are damaged: they have another hash")
