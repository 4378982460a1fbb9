"""Write the rows that a job makes of one work item: one Parquet file and one manifest per shard, table and scorer."""

import hashlib
import os
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from pairmill.catalog.lake.arrow import arrow_schema
from pairmill.catalog.lake.stored_files import append_digest, check_uploaded, uploading
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.terms.ids import text_id
from pairmill.catalog.write.commit import Manifest, Usage

# Columns that are looked up by one value get a bloom filter (1.3 bytes a row): skipping a file then costs a tenth of
# reading it.
BLOOM_FILTERED = {"image_id", "sentence_id", "document_id", "sha256", "content", "key", "url", "uri"}


@dataclass(frozen=True)
class Part:
    """Rows of one table, from a job.

    The runner adds the columns ``shard``, ``scorer`` and ``commit``. ``usage`` counts the tokens that a model read and
    generated for these rows, None if it counts none.
    """

    table: str
    rows: pa.Table
    scorer: str = ""
    usage: Usage | None = None


class Job(Protocol):
    """Callable that converts one work item to rows of tables.

    A job is pickled once to each worker, lives as long as the worker, and loads its models on first use. It may yield
    several parts of one table, so that the written rows need not fit in memory. Optional attributes: ``reads_sources``,
    true if its rows are units of a source, read in turn; ``unit``, the name of the item's rows in the plural, for
    progress.
    """

    def __call__(self, item: WorkItem) -> Iterable[Part]:
        """Convert one work item to parts."""
        ...


@dataclass(frozen=True)
class Output:
    """Destination of a stage's files: ``<data_path>main/<table>/<run_id>/<work item>-<try>.parquet``.

    ``step`` is the step's name, for the logs of its workers.
    """

    data_path: str
    run_id: str
    commit: int
    step: str = ""


def write_parts(parts: Iterable[Part], item: WorkItem, output: Output) -> list[Manifest]:
    """Write parts as they arrive, one Parquet file per shard, table and scorer; return a manifest for each file.

    A table without rows has a manifest without a file. The manifests have 0 seconds: only the caller knows how long the
    parts took. Written files stay when a part raises.
    """
    files: dict[tuple[int, str, str], _Partition] = {}
    try:
        for part in parts:
            for n, mine in _by_shard(part, item):
                key = n, part.table, part.scorer
                if key not in files:
                    files[key] = _Partition(part.table, part.scorer, item.by_shard[n], output)
                files[key].add(mine)
    except BaseException:
        for file in files.values():
            with suppress(Exception):  # the first error counts
                file.abandon()
        raise
    scorers = " ".join(sorted(scorer for _, scorer in {key[1:] for key in files} if scorer))
    return [file.finish(scorers) for file in files.values()]


def _by_shard(part: Part, item: WorkItem) -> Iterator[tuple[int, Part]]:
    """Yield (shard number, its rows of ``part`` with their tokens); a part without rows goes to every shard."""
    if not item.joined or not part.rows.num_rows:
        yield from ((n, part) for n, _ in enumerate(item.by_shard))
        return
    home_of = {key: n for n, home in enumerate(item.joined) for key in home.keys}
    rows_of: dict[int, list[int]] = {}
    column = next(name for name in ("sha256", "content", "item") if name in part.rows.column_names)
    for row, key in enumerate(part.rows[column].to_pylist()):
        rows_of.setdefault(home_of[key], []).append(row)
    done = 0
    for n, rows in sorted(rows_of.items()):
        usage = part.usage and part.usage.of_rows(done, done + len(rows), part.rows.num_rows)
        yield n, replace(part, rows=part.rows.take(pa.array(rows)), usage=usage)
        done += len(rows)


class _Partition:
    """The open Parquet file of one work item and table, written while the job still makes rows."""

    def __init__(self, table: str, scorer: str, item: WorkItem, output: Output) -> None:
        self._table, self._scorer, self._item, self._output = table, scorer, item, output
        # A random suffix: the worker of a failed attempt may still be writing when the retry starts.
        self._path = f"{output.data_path}main/{table}/{output.run_id}/{item.digest}-{uuid.uuid4().hex[:8]}.parquet"
        self._rows = 0
        self._usage: Usage | None = None
        self._file: ParquetFile | None = None

    def add(self, part: Part) -> None:
        """Append the rows and tokens of a part."""
        if part.usage is not None:
            self._usage = (self._usage or Usage()) + part.usage
        if part.rows.num_rows:
            self._file = self._file or ParquetFile(self._path)
            self._file.write(_with_columns(part, self._item.shard, self._output))
            self._rows += part.rows.num_rows

    def finish(self, scorers: str) -> Manifest:
        """Close the file and return its manifest.

        ``scorers`` are the digests of all scorers that the job wrote. They identify rows without a scorer of their own
        (quarantine rows): a fault of the same rows under another scorer is another partition.
        """
        partition_id = text_id(self._table, self._item.shard, self._scorer or scorers, self._item.digest)
        path, size, digest = self._file.close() if self._file else ("", 0, "")
        return Manifest(
            self._table, partition_id, self._item.shard, self._scorer, self._rows, size, 0.0, path,
            self._output.commit, self._output.run_id, digest, self._usage,
        )  # fmt: skip

    def abandon(self) -> None:
        """Close the file without a manifest."""
        if self._file:
            self._file.close()


def _with_columns(part: Part, shard: str, output: Output) -> pa.Table:
    """Cast the part's rows to the table's schema and add ``shard``, ``scorer``, ``commit`` and ``run_id``."""
    schema = arrow_schema(part.table)
    constants = {"shard": shard, "scorer": part.scorer, "commit": output.commit, "run_id": output.run_id}
    rows = part.rows
    for name, value in constants.items():
        if name in schema.names and name not in rows.column_names:
            rows = rows.append_column(name, pa.repeat(pa.scalar(value, schema.field(name).type), rows.num_rows))
    return rows.select(schema.names).cast(schema)


def with_seconds(manifests: list[Manifest], seconds: float) -> list[Manifest]:
    """Return the manifests with ``seconds`` set; manifests of one table and scorer share them in proportion to rows."""
    rows: Counter[tuple[str, str]] = Counter()
    for each in manifests:
        rows[each.table, each.scorer] += each.rows
    share = [each.rows / total if (total := rows[each.table, each.scorer]) else 1.0 for each in manifests]
    return [replace(each, seconds=round(seconds * part, 4)) for each, part in zip(manifests, share, strict=True)]


class ParquetFile:
    """A Parquet file being written, at a path or s3 URL, in the lake's format: compressed, with checksums and filters.

    The file is synced to disk before a commit names it. Per MB, hashing takes 0.6 CPU ms and page
    checksums 0.3 ms; writing images takes 0.7 ms.
    """

    def __init__(self, path: str) -> None:
        import fsspec  # 0.1 CPU s: a flow that has nothing to do writes no file

        filesystem, local = fsspec.core.url_to_fs(path)
        filesystem.makedirs(os.path.dirname(local), exist_ok=True)
        self._path, self._local, self._filesystem = path, local, filesystem
        self._on_disk = "file" in filesystem.protocol
        self._file = HashingFile(filesystem.open(local, "wb"))
        self._writer: pq.ParquetWriter | None = None

    def write(self, rows: pa.Table) -> None:
        """Append rows. The first call sets the file's schema and the size of its bloom filters."""
        # The rows of a row group: at most 64 MB, which a reader loads at once, and at most DuckDB's 122,880.
        n = max(1, min(rows.num_rows, 122_880, int(rows.num_rows * 64e6 / max(rows.nbytes, 1))))
        if self._writer is None:
            filters = {name: {"ndv": n, "fpp": 0.01} for name in rows.column_names if name in BLOOM_FILTERED}
            # Encoded images do not compress: trying takes twice as long as writing them.
            packed: Any = {name: "NONE" if name == "bytes" else "ZSTD" for name in rows.column_names}
            sink: Any = self._file
            self._writer = pq.ParquetWriter(
                sink, rows.schema, compression=packed, bloom_filter_options=filters, write_page_checksum=True
            )
        with nullcontext() if self._on_disk else uploading(self._path):
            self._writer.write_table(rows, row_group_size=n)

    def close(self) -> tuple[str, int, str]:
        """Finish the file; return its path, its size in bytes and its sha256.

        A local file is synced and renamed with its sha256 as a suffix, so that the transaction that registers it
        records the expected content (`catalog.lake.checksums`). Raises PairmillError if S3 does not hold the object.
        """
        with nullcontext() if self._on_disk else uploading(self._path):
            if self._writer is not None:
                self._writer.close()
            file, digest, size = self._file.file, self._file.digest, self._file.n_bytes
            file.flush()
            if self._on_disk:  # a commit survives a power cut, so must the files that it names; S3 is durable at once
                os.fsync(file.fileno())
            file.close()
        path = self._path
        if self._on_disk:
            path = append_digest(path, digest.hexdigest())
            os.replace(self._local, append_digest(self._local, digest.hexdigest()))
        else:
            check_uploaded(self._filesystem, path, size)
        return path, size, digest.hexdigest()


class HashingFile:
    """File object that forwards writes to an open, new file, and counts and hashes (sha256) their bytes."""

    closed = False

    def __init__(self, file: Any) -> None:
        self.file, self.digest, self.n_bytes = file, hashlib.sha256(), 0

    def write(self, data: Any) -> int:
        """Write bytes; return their number."""
        data = memoryview(data)  # Arrow gives a view of its buffer
        self.digest.update(data)
        self.n_bytes += data.nbytes
        self.file.write(data)
        return data.nbytes

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self.n_bytes

    def flush(self) -> None:
        """Flush the file."""
        self.file.flush()

    def writable(self) -> bool:
        """Return True: the file is open for writing."""
        return True
