"""Read the rows of a range of clusters from a vector index, and merge its files so that a range opens few of them.

An assignment writes files of at most 131,072 vectors, sorted by cluster. Of each, a range needs a few rows, for which
it opens the file, reads a footer and decodes row groups of up to 64 MB. A *merged file* has the rows of 64 to 512 such
files, range after range; its manifest, a file beside it, has their offsets, so that a range is one read.

Merged files are copies, in FOLDER below the lake's data path, as large as the index. They may be deleted at any time:
the next search merges again. A manifest is written last: without one, the rest of a killed merge is ignored. A merged
file is used while the lake has every file that it was merged from; a removal of rows replaces these (`merged_files`).
"""

import functools
import json
import uuid
import zlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pairmill.catalog.lake import snapshot
from pairmill.catalog.lake.arrow import arrow_schema
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.stored_files import uploading
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.terms.error import Damaged
from pairmill.catalog.terms.ids import text_id
from pairmill.tasks.run.items.partition import Part
from pairmill.tasks.run.items.rows import open_parquet, read_table

FOLDER, MANIFEST = ".index/", ".json"
# Files of one merge, 13 MB of memory each. FEWEST is also the number of ranges from which on a merge pays.
FEWEST, MOST = 64, 512
# Merged files that one step writes, and those with which an index is merged anew from its own files.
MERGED, MOST_MERGED = 64, 128
COLUMNS = ["key", "cluster", "index_vector", "commit"]
ROWS = 256  # read at once of each file


def read_range(paths: tuple[str, ...], columns: list[str], span: tuple[int, int], is_small: bool) -> pa.Table:
    """Read the rows of clusters ``span[0]`` to ``span[1]``, inclusive, from files sorted by cluster, or merged files.

    If ``is_small``, the process reads all rows once and caches them for other ranges: the eight ranges of a small lake
    would open each file eight times, 1 CPU ms each. Otherwise it skips the row groups of other clusters. ``span`` must
    be a range of each merged file. Raises Damaged.
    """
    first, last = span
    if is_small:
        rows = _all_rows(paths, tuple(columns))
        return rows.filter((pc.field("cluster") >= first) & (pc.field("cluster") <= last))
    among = [("cluster", ">=", first), ("cluster", "<=", last)]
    tables = (
        read_table(path, columns, among) if path.endswith(".parquet") else _read_block(path, span).select(columns)
        for path in paths
    )
    return pa.concat_tables(tables)


@functools.lru_cache(maxsize=3)
def _all_rows(paths: tuple[str, ...], columns: tuple[str, ...]) -> pa.Table:
    """Read all rows of the files; the last three results of a process are cached."""
    return pa.concat_tables([read_table(path, list(columns)) for path in paths])


def _read_block(path: str, span: tuple[int, int]) -> pa.Table:
    """Read one cluster range from a merged file. Raises Damaged if it is damaged, or was merged by other ranges."""
    filesystem, local = _filesystem(path)
    try:
        lasts, ends, checksums = _offsets(path)
        at = bisect_left(lasts, span[1])
        before, start = (lasts[at - 1], ends[at - 1]) if at else (-1, 0)
        data = filesystem.cat_file(local, start=int(start), end=int(ends[at]))
        if (before + 1, lasts[at]) == span and zlib.crc32(data) == checksums[at]:
            return pa.ipc.open_stream(data).read_all()
        why = "it holds other bytes than were merged"
    except (OSError, ValueError, LookupError) as error:
        why = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    raise Damaged(f"{path} is gone or damaged ({why}). It is a copy: delete its folder, and run this again.")


@functools.lru_cache(maxsize=4 * MOST_MERGED)
def _offsets(path: str) -> np.ndarray:
    """Read from a manifest the last cluster, the end and the checksum of each range, int64 (3, ranges), and keep it."""
    filesystem, local = _filesystem(path + MANIFEST)
    manifest = json.loads(filesystem.cat_file(local))
    return np.array([manifest[name] for name in ("lasts", "ends", "checksums")])


def _filesystem(path: str) -> tuple[Any, str]:
    """Return the file system of a path or s3 URL, and the path in it."""
    import fsspec  # 0.1 CPU s: a run without work opens no file

    return fsspec.core.url_to_fs(path)


def _digest(manifest: dict[str, Any]) -> str:
    """Hash a manifest's sources and ranges to 32 hex digits; the name of its merged file begins with them."""
    return text_id("merged index", *manifest["sources"], *map(str, manifest["lasts"]))


def merged_files(lake: Lake) -> dict[str, set[str]]:
    """Return the paths of the merged files whose sources the lake still has, with these; remove all else in FOLDER.

    That is the rest of a killed merge, what does not fit its manifest, and sources that a larger file has too.
    Requires the lease.
    """
    filesystem, folder = _filesystem(lake.data_path + FOLDER)
    filesystem.invalidate_cache()
    try:
        listed = filesystem.ls(folder, detail=True)
    except FileNotFoundError:
        return {}
    sizes = {each["name"].rpartition("/")[2]: each["size"] for each in listed if each["type"] == "file"}
    current, found = {file.data_file for file in snapshot.files(lake.query, ("vector_index",))}, {}
    with_manifest = (name for name in sizes if f"{name}{MANIFEST}" in sizes)
    for name in sorted(with_manifest, key=lambda name: (-sizes[name], name)):
        with suppress(ValueError, LookupError, TypeError):  # a damaged manifest
            manifest = json.loads(filesystem.cat_file(f"{folder.rstrip('/')}/{name}{MANIFEST}"))
            fits = name.startswith(_digest(manifest)) and sizes[name] == manifest["ends"][-1]
            if fits and current.issuperset(manifest["sources"]):
                found[name] = manifest["sources"]
                current.difference_update(manifest["sources"])
    for name in sizes.keys() - found.keys() - {f"{merged}{MANIFEST}" for merged in found}:
        filesystem.rm_file(f"{folder.rstrip('/')}/{name}")
    at = lake.data_path
    return {f"{at}{FOLDER}{name}": {at + path for path in sources} for name, sources in found.items()}


def split_merged(lake: Lake, paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return (merged files with rows of the index files ``paths`` alone, files of ``paths`` that no merged file holds).

    Requires the lease.
    """
    merged = {path: sources for path, sources in merged_files(lake).items() if sources <= set(paths)}
    held = set().union(*merged.values())
    return list(merged), [path for path in paths if path not in held]


def groups(paths: Sequence[str]) -> list[tuple[str, ...]]:
    """Split files into groups to merge, of FEWEST to MOST files: at most MERGED groups of up to 32,768 files."""
    n = len(paths)
    many = max(min(n // FEWEST, MERGED), -(-n // MOST)) if n >= FEWEST else 0
    return [tuple(paths[n * i // many : n * (i + 1) // many]) for i in range(many)]


@dataclass(frozen=True)
class MergeIndex:
    """Job: merge the index files of an item into one file, in FOLDER below ``data_path``.

    ``lasts`` are the last clusters of the ranges, ascending. Memory holds a batch of each file, and the rows of one
    range.
    """

    unit: ClassVar[str] = "index files"

    data_path: str
    lasts: tuple[int, ...]

    def __call__(self, item: WorkItem) -> list[Part]:
        """Write a merged file, then its manifest; return no rows."""
        sources = [path.removeprefix(self.data_path) for path in item.paths]
        manifest: dict[str, Any] = {"sources": sources, "lasts": self.lasts, "ends": [], "checksums": []}
        # A random suffix: the worker of a failed attempt may still be writing when the retry starts.
        path = f"{self.data_path}{FOLDER}{_digest(manifest)}-{uuid.uuid4().hex[:8]}"
        filesystem, local = _filesystem(path)
        filesystem.makedirs(local.rpartition("/")[0], exist_ok=True)
        schema = pa.schema([arrow_schema("vector_index").field(name) for name in COLUMNS])
        streams = [_by_range(path, self.lasts) for path in item.paths]
        with uploading(path) if path.startswith("s3://") else nullcontext():
            with filesystem.open(local, "wb") as file:
                for batches in zip(*streams, strict=True):
                    rows = pa.Table.from_batches(chain.from_iterable(batches), schema).combine_chunks()
                    block = pa.BufferOutputStream()
                    with pa.ipc.new_stream(block, rows.schema) as stream:
                        stream.write_table(rows)
                    file.write(block.getvalue())
                    manifest["checksums"].append(zlib.crc32(block.getvalue()))
                    manifest["ends"].append(file.tell())
            filesystem.pipe_file(local + MANIFEST, json.dumps(manifest).encode())
        return []


def _by_range(path: str, lasts: Sequence[int]) -> Iterator[Sequence[pa.RecordBatch]]:
    """Read an index file range by range: yield the batches of each range of clusters, none for an empty range.

    Raises Damaged if the file is not sorted by cluster.
    """
    with open_parquet(path) as file:
        reader = pq.ParquetFile(file, buffer_size=2**16, pre_buffer=False, page_checksum_verification=True)
        at, before, mine = 0, 0, ()
        for batch in reader.iter_batches(ROWS, columns=COLUMNS, use_threads=False):
            clusters = batch["cluster"].to_numpy()
            if (np.diff(clusters, prepend=before) < 0).any() or clusters[-1] > lasts[-1]:
                raise Damaged(f"{path} is not sorted by cluster: `pairmill check` says if it is as it was written.")
            done, before = 0, int(clusters[-1])
            ended = lasts[at : bisect_left(lasts, before)]
            for n in np.searchsorted(clusters, ended, "right").tolist():
                # Most ranges have no row of a small file: there are files x ranges of these steps.
                yield (*mine, batch.slice(done, n - done)) if n > done else mine
                mine, done = (), n
            at += len(ended)
            mine = (*mine, batch.slice(done))
        yield mine
        yield from repeat((), len(lasts) - at - 1)
