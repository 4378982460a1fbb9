"""Write the rows that a job makes of one work item: one Parquet file and one manifest per shard, table and scorer."""

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from pairmill.catalog.lake.arrow import arrow_schema
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.terms.ids import text_id
from pairmill.catalog.write.commit import Manifest, Usage
from pairmill.tasks.run.items.parquet_file import ParquetFile


@dataclass(frozen=True)
class Part:
    """Rows of one table that a job made.

    The runner adds the columns ``shard``, ``scorer`` and ``commit``. ``usage`` counts the tokens that a model read and
    generated for these rows, None if it counts none.
    """

    table: str
    rows: pa.Table
    scorer: str = ""
    usage: Usage | None = None


class Job(Protocol):
    """Callable that turns one work item into rows.

    It is pickled once to each worker, lives as long as the worker, and loads its models on first use. It may yield
    several parts of one table, so that the written rows need not fit in memory. A true attribute ``is_light`` says that
    it uses neither models nor torch. An attribute ``unit`` names the item's rows in the plural, as progress shows them.
    """

    def __call__(self, item: WorkItem) -> Iterable[Part]:
        """Turn one work item into parts."""
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
    """Write parts as they arrive, one Parquet file per shard, table and scorer; no rows give a manifest without a file.

    The manifests have 0 seconds: only the caller knows how long the parts took. Written files stay when a part raises.
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
            file.abandon()
        raise
    scorers = " ".join(sorted(scorer for _, scorer in {key[1:] for key in files} if scorer))
    return [file.finish(scorers) for file in files.values()]


def _by_shard(part: Part, item: WorkItem) -> Iterator[tuple[int, Part]]:
    """Yield (shard number, the shard's rows of ``part`` with their share of its tokens).

    A part without rows goes to every shard.
    """
    if not item.joined or not part.rows.num_rows:
        yield from ((n, part) for n, _ in enumerate(item.by_shard))
        return
    home_of = {key: n for n, home in enumerate(item.joined) for key in home.keys}
    rows_of: dict[int, list[int]] = {}
    for row, key in enumerate(part.rows[_key(part)].to_pylist()):
        rows_of.setdefault(home_of[key], []).append(row)
    done = 0
    for n, rows in sorted(rows_of.items()):
        usage = part.usage and part.usage.of_rows(done, done + len(rows), part.rows.num_rows)
        yield n, replace(part, rows=part.rows.take(pa.array(rows)), usage=usage)
        done += len(rows)


def _key(part: Part) -> str:
    """Return the name of the column that holds the item's keys."""
    return next(name for name in ("sha256", "content", "item") if name in part.rows.column_names)


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


def timed_parts(make: Callable[[], Iterable[Part]], item: WorkItem, output: Output) -> list[Manifest]:
    """Make and write parts; put the seconds that both took into the manifests."""
    started = time.perf_counter()
    manifests = write_parts(make(), item, output)
    return with_seconds(manifests, time.perf_counter() - started)


def with_seconds(manifests: list[Manifest], seconds: float) -> list[Manifest]:
    """Return the manifests with ``seconds``, divided by rows among the manifests of one table and scorer."""
    rows: Counter[tuple[str, str]] = Counter()
    for each in manifests:
        rows[each.table, each.scorer] += each.rows
    share = [each.rows / total if (total := rows[each.table, each.scorer]) else 1.0 for each in manifests]
    return [replace(each, seconds=round(seconds * part, 4)) for each, part in zip(manifests, share, strict=True)]
