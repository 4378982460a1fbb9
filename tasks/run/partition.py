"""Write the rows that a job makes of one work item: one Parquet file and one manifest a table and scorer."""

import hashlib
import os
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq

from catalog.lake.arrow import arrow_schema
from catalog.pending.item import WorkItem
from catalog.terms.ids import text_id
from catalog.write.commit import Manifest, Usage


@dataclass(frozen=True)
class Part:
    """Rows of one table; ``shard``, ``scorer`` and ``commit`` are added by the runner. ``usage``: the tokens that a
    model read and made for them, if it counts any."""

    table: str
    rows: pa.Table
    scorer: str = ""
    usage: Usage | None = None


class Job(Protocol):
    """Callable that makes rows of one work item. Pickled to each worker, lives as long, loads its models on first use.

    It may yield parts one at a time, several of one table, so that what is written is not held in memory.
    """

    def __call__(self, item: WorkItem) -> Iterable[Part]: ...


@dataclass(frozen=True)
class Output:
    """Where a stage's files go: ``<data_path>main/<table>/<run_id>/<work item>-<try>.parquet``."""

    data_path: str
    run_id: str
    commit: int


# Columns looked up by one value get a bloom filter: for 1.3 bytes a row a file without it costs a tenth of a read.
BLOOM_FILTERED = {"image_id", "sentence_id", "document_id", "sha256", "content", "key", "url", "uri"}


def write_parts(parts: Iterable[Part], item: WorkItem, output: Output) -> list[Manifest]:
    """Write parts as they come, one Parquet file a table and scorer; a table without rows gets a manifest only.

    The manifests say 0 seconds: the caller knows how long the parts took. Removes nothing when a part raises.
    """
    files: dict[tuple[str, str], _Partition] = {}
    try:
        for part in parts:
            key = part.table, part.scorer
            if key not in files:
                files[key] = _Partition(part.table, part.scorer, item, output)
            files[key].add(part)
    except BaseException:
        for file in files.values():
            file.abandon()
        raise
    scorers = " ".join(sorted(scorer for _, scorer in files if scorer))
    return [file.finish(scorers) for file in files.values()]


class _Partition:
    """The open Parquet file of one work item and table, written while its rows are still being made."""

    def __init__(self, table: str, scorer: str, item: WorkItem, output: Output) -> None:
        self._table, self._scorer, self._item, self._output = table, scorer, item, output
        # A worker of a try that failed may still be writing when the next one begins.
        self._path = f"{output.data_path}main/{table}/{output.run_id}/{item.digest}-{uuid.uuid4().hex[:8]}.parquet"
        self._rows = 0
        self._usage: Usage | None = None
        self._file: ParquetFile | None = None

    def add(self, part: Part) -> None:
        if part.usage is not None:
            self._usage = (self._usage or Usage()) + part.usage
        if part.rows.num_rows:
            self._file = self._file or ParquetFile(self._path)
            self._file.write(_with_columns(part, self._item.shard, self._output))
            self._rows += part.rows.num_rows

    def finish(self, scorers: str) -> Manifest:
        """Close the file and return its manifest.

        ``scorers`` are the digests of all that the job wrote. They identify rows without a scorer of their own (a
        quarantine row): another scorer's fault of the same rows is another partition.
        """
        partition_id = text_id(self._table, self._item.shard, self._scorer or scorers, self._item.digest)
        path, size, digest = (self._path, *self._file.close()) if self._file else ("", 0, "")
        return Manifest(
            self._table, partition_id, self._item.shard, self._scorer, self._rows, size, 0.0, path,
            self._output.commit, self._output.run_id, digest, self._usage,
        )  # fmt: skip

    def abandon(self) -> None:
        if self._file:
            self._file.close()


class ParquetFile:
    """A Parquet file, at a path or s3 URL, with the lake's compression, bloom filters, row groups and checksums.

    To hash it takes 0.6 CPU ms a MB, the checksums of its pages 0.3, where to write pictures takes 0.7.
    """

    def __init__(self, path: str) -> None:
        filesystem, local = fsspec.core.url_to_fs(path)
        filesystem.makedirs(os.path.dirname(local), exist_ok=True)
        self._on_disk = "file" in filesystem.protocol
        self._file = _Hashing(filesystem.open(local, "wb"))
        self._writer: pq.ParquetWriter | None = None

    def write(self, rows: pa.Table) -> None:
        n = _row_group_rows(rows)
        if self._writer is None:
            filters = {name: {"ndv": n, "fpp": 0.01} for name in rows.column_names if name in BLOOM_FILTERED}
            # Encoded pictures do not shrink: to try takes twice as long as to write them.
            packed: Any = {name: "NONE" if name == "bytes" else "ZSTD" for name in rows.column_names}
            sink: Any = self._file
            self._writer = pq.ParquetWriter(
                sink, rows.schema, compression=packed, bloom_filter_options=filters, write_page_checksum=True
            )
        self._writer.write_table(rows, row_group_size=n)

    def close(self) -> tuple[int, str]:
        """Finish the file, synced to disk if it is local; return its size in bytes and its sha256."""
        if self._writer is not None:
            self._writer.close()
        file, digest = self._file.file, self._file.digest
        size = file.tell()
        file.flush()
        if self._on_disk:  # the catalog's commit survives a power cut, so must what it names; on S3 it does as written
            os.fsync(file.fileno())
        file.close()
        return size, digest.hexdigest()


class _Hashing:
    """What Parquet is written to: an open file, and the sha256 of all that went into it."""

    closed = False

    def __init__(self, file: Any) -> None:
        self.file = file
        self.digest = hashlib.sha256()

    def write(self, data: Any) -> int:
        self.digest.update(data)
        return self.file.write(data)

    def tell(self) -> int:
        return self.file.tell()

    def flush(self) -> None:
        self.file.flush()

    def writable(self) -> bool:
        return True


def _with_columns(part: Part, shard: str, output: Output) -> pa.Table:
    """Cast the part's rows to the table's schema, adding its ``shard``, ``scorer``, ``commit`` and ``run_id``."""
    schema = arrow_schema(part.table)
    constants = {"shard": shard, "scorer": part.scorer, "commit": output.commit, "run_id": output.run_id}
    rows = part.rows
    for name, value in constants.items():
        if name in schema.names and name not in rows.column_names:
            rows = rows.append_column(name, pa.repeat(pa.scalar(value, schema.field(name).type), rows.num_rows))
    return rows.select(schema.names).cast(schema)


def _row_group_rows(rows: pa.Table) -> int:
    """Rows a row group: at most 64 MB, which a reader holds at once, and at most DuckDB's 122,880."""
    return max(1, min(rows.num_rows, 122_880, int(rows.num_rows * 64e6 / max(rows.nbytes, 1))))


def timed_parts(make: Callable[[], Iterable[Part]], item: WorkItem, output: Output) -> list[Manifest]:
    """Write what ``make`` returns, with the seconds that this and to make it took in the manifests."""
    started = time.perf_counter()
    manifests = write_parts(make(), item, output)
    return with_seconds(manifests, time.perf_counter() - started)


def with_seconds(manifests: list[Manifest], seconds: float) -> list[Manifest]:
    """Return the manifests with what they took."""
    return [replace(manifest, seconds=round(seconds, 4)) for manifest in manifests]
