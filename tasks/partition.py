"""What a worker makes of one work item: rows of some tables, each table's as one Parquet file with its manifest."""

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq

from catalog.arrow import arrow_schema
from catalog.commit import Manifest
from catalog.worklist import WorkItem
from ops.identity import text_id


@dataclass(frozen=True)
class Part:
    """Rows of one table; ``shard``, ``scorer`` and ``commit`` are added by the runner."""

    table: str
    rows: pa.Table
    scorer: str = ""


class Job(Protocol):
    """What is done with one work item; lives as long as a worker, loads its models on first use."""

    def __call__(self, item: WorkItem) -> list[Part]: ...


@dataclass(frozen=True)
class Output:
    """Where a stage's files go: ``<data_path>main/<table>/<run_id>/<partition_id>.parquet``."""

    data_path: str
    run_id: str
    commit: int


def write_parts(parts: Iterable[Part], item: WorkItem, output: Output, seconds: float) -> list[Manifest]:
    """Write each part as one Parquet file; a part without rows is a manifest without a file."""
    return [_write(part, item, output, seconds) for part in parts]


def _write(part: Part, item: WorkItem, output: Output, seconds: float) -> Manifest:
    partition_id = text_id(part.table, item.shard, part.scorer, item.digest)
    path, size = "", 0
    if part.rows.num_rows:
        path = f"{output.data_path}main/{part.table}/{output.run_id}/{partition_id}.parquet"
        size = write_file(path, _with_columns(part, item.shard, output))
    return Manifest(
        part.table, partition_id, item.shard, part.scorer, part.rows.num_rows, size, round(seconds, 4), path,
        output.commit, output.run_id,
    )  # fmt: skip


# What a person asks for one of: a filter of 1.3 bytes a row says that a file does not hold it, at a tenth of a read.
ASKED_FOR = {"image_id", "sentence_id", "document_id", "sha256", "content", "key", "url", "uri"}


def write_file(path: str, rows: pa.Table) -> int:
    """Write a Parquet file to a path or s3 URL, as the lake wants it. Returns its bytes."""
    n = _row_group_rows(rows)
    filters = {name: {"ndv": n, "fpp": 0.01} for name in rows.column_names if name in ASKED_FOR}
    filesystem, local = fsspec.core.url_to_fs(path)
    filesystem.makedirs(os.path.dirname(local), exist_ok=True)
    with filesystem.open(local, "wb") as file:
        pq.write_table(rows, file, compression="zstd", row_group_size=n, bloom_filter_options=filters)
        return file.tell()


def _with_columns(part: Part, shard: str, output: Output) -> pa.Table:
    schema = arrow_schema(part.table)
    constants = {"shard": shard, "scorer": part.scorer, "commit": output.commit, "run_id": output.run_id}
    rows = part.rows
    for name, value in constants.items():
        if name in schema.names and name not in rows.column_names:
            rows = rows.append_column(name, pa.repeat(pa.scalar(value, schema.field(name).type), rows.num_rows))
    return rows.select(schema.names).cast(schema)


def _row_group_rows(rows: pa.Table) -> int:
    """Rows a row group so that none holds over 64 MB, the most that a reader has to hold at once."""
    return max(1, min(rows.num_rows, 122_880, int(rows.num_rows * 64e6 / max(rows.nbytes, 1))))


@dataclass(frozen=True)
class Worker:
    """A job and where its files go: all that a worker process is told, once."""

    job: Job
    output: Output

    def __call__(self, item: WorkItem) -> list[Manifest]:
        started = time.perf_counter()
        parts = self.job(item)
        return write_parts(parts, item, self.output, time.perf_counter() - started)
