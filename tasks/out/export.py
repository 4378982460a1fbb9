"""Export a published dataset: WebDataset tars for training, or Parquet tables in RealSyn's columns.

Files are numbered and written one after the other, each whole or absent. `progress.json` remembers the finished ones,
so a killed export continues where it was; `manifest.json` comes last, so an export without it is not finished. Equal
versions give equal bytes, manifest included.
"""

import io
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow.parquet as pq

from catalog.ask import datasets, exports
from catalog.ask.datasets import Dataset
from catalog.lake.lake import Lake
from catalog.terms.error import PairmillError
from catalog.write import lease
from tasks.out.destination import MANIFEST, PROGRESS, Destination, HashingFile, Written
from tasks.out.webdataset_tars import write_tar

Format = Literal["webdataset", "parquet"]
TAR_ROWS, TAR_BYTES = 10_000, 1_000_000_000
TABLE_ROWS = 100_000  # some 100 MB a file, which is what is held in memory
REALSYN = ("raw_image_url", "text1", "text2", "text3", "syn_text")
_SUFFIX = {"webdataset": "tar", "parquet": "parquet"}


@dataclass(frozen=True)
class Exported:
    """The export at ``uri``: its number of files, pairs and bytes, without the manifest."""

    uri: str
    files: int
    rows: int
    bytes: int


def export(
    lake: Lake,
    name: str,
    version: int | None,
    to: str,
    format: Format = "webdataset",
    wait_seconds: float = 60.0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Exported:
    """Write ``name`` at ``version`` (None: the newest) to the folder or s3:// prefix ``to``, one export a folder.

    webdataset: `NAME-vV-000000.tar` of at most 10,000 samples and 1 GB, each `{image_id}.jpg` (or png, webp, … : the
    original bytes), `.json` (all columns of the pair) and `.txt` (text1), in the order of the shards that hold the
    bytes, so neighbours come from near documents: shuffle shards and samples while training. parquet:
    `NAME-vV-000000.parquet`, RealSyn's columns, then ids, texts and scores, by image_id; no picture bytes.

    One process; memory is one file's rows and the pictures that they take from one shard, 1 GB at most. Finished files
    are not written again. Takes the lease to insert its row in ``exports`` (waits ``wait_seconds`` for it).

    Raises PairmillError when there is no such dataset, when the place cannot be written or holds another export, when a
    picture's bytes are gone, or when the version was amended meanwhile; LeaseHeld when another process keeps the lease.
    """
    if format not in _SUFFIX:
        raise PairmillError(f"there is no export format '{format}'; write {' or '.join(_SUFFIX)}.")
    if lake.read_only:
        raise PairmillError(
            f"lake '{lake.uri}' is open for reading only; open it to write: an export is put on record."
        )
    dataset = datasets.find(lake, name if version is None else f"{name}@{version}")
    place = Destination(to)
    files = _finished(place, dataset, format) or _write_all(lake, dataset, place, format, progress)
    found = Exported(place.uri, len(files), sum(file.rows for file in files), sum(file.bytes for file in files))
    with lease.writing(lake, uuid.uuid4().hex, f"export {dataset}", wait_seconds):
        exports.record(lake, dataset, format, found.uri, found.files, found.rows, found.bytes)
    place.write_json(MANIFEST, _head(dataset, format), files)
    place.remove(PROGRESS)
    return found


def _head(dataset: Dataset, format: str) -> dict[str, Any]:
    """Make the part of the manifest that identifies an export."""
    return {
        "dataset": dataset.name,
        "version": dataset.version,
        "format": format,
        "content_digest": dataset.content_digest,
        "rows": dataset.n_pairs,
    }


def _finished(place: Destination, dataset: Dataset, format: str) -> list[Written]:
    """Return the files of a finished export of this content, else []. Raises PairmillError for another export."""
    manifest = place.read_json(MANIFEST)
    head = _head(dataset, format)
    for key in ("dataset", "version", "format"):
        if manifest and manifest.get(key) != head[key]:
            held = f"{manifest.get('dataset')}@{manifest.get('version')} as {manifest.get('format')}"
            raise PairmillError(f"'{place.uri}' holds the export of {held}. Give another folder, or empty this one.")
    return _listed_files(place, manifest, head) if manifest.get("files") else []


def _listed_files(place: Destination, listing: dict[str, Any], head: dict[str, Any]) -> list[Written]:
    """Return the files that a manifest or progress.json lists, if it is of this content and all exist; else []."""
    if any(listing.get(key) != value for key, value in head.items()):
        return []
    files = [Written(**file) for file in listing.get("files", [])]
    return files if all(place.holds(file) for file in files) else []


def _write_all(
    lake: Lake, dataset: Dataset, place: Destination, format: Format, progress: Callable[[int, int], None]
) -> list[Written]:
    """Write the files that progress.json does not list yet, and return all."""
    head = _head(dataset, format)
    place.prepare()
    files = _listed_files(place, place.read_json(PROGRESS), head)
    place.remove(MANIFEST)
    place.write_json(PROGRESS, head, files)
    exports.gather(lake, dataset, by_shard=format == "webdataset")
    try:
        paths = exports.picture_paths(lake) if format == "webdataset" else {}
        spans = _spans(exports.sizes(lake), format)
        for number, (first, last) in enumerate(spans):
            progress(first, dataset.n_pairs)
            if number < len(files):
                continue
            name = f"{dataset.name}-v{dataset.version}-{number:06d}.{_SUFFIX[format]}"
            table = exports.portion(lake, first, last)
            with place.file(name) as out:
                write_tar(table.to_pylist(), paths, out) if format == "webdataset" else _write_table(table, out)
            files.append(out.written(name, table.num_rows))
            place.write_json(PROGRESS, head, files)
    finally:
        exports.release(lake)
    _remove_strays(place, dataset, files)
    progress(dataset.n_pairs, dataset.n_pairs)
    return files


def _remove_strays(place: Destination, dataset: Dataset, files: list[Written]) -> None:
    """Remove files that an earlier, larger state of this version left behind."""
    known = {file.name for file in files}
    for name in place.names():
        if name.startswith(f"{dataset.name}-v{dataset.version}-") and name not in known:
            place.remove(name)


def _spans(sizes: np.ndarray, format: Format) -> Iterator[tuple[int, int]]:
    """Divide pairs into files: yield (first, end) of each one's rows, at least one row a file."""
    most_rows = TAR_ROWS if format == "webdataset" else TABLE_ROWS
    ends = np.cumsum(sizes)
    first = 0
    while first < len(sizes):
        last = min(first + most_rows, len(sizes))
        if format == "webdataset":
            before = ends[first - 1] if first else 0
            last = max(first + 1, min(last, int(np.searchsorted(ends, before + TAR_BYTES, side="right"))))
        yield first, last
        first = last


def _write_table(table: Any, out: HashingFile) -> None:
    """Write pairs as Parquet, RealSyn's columns first."""
    rest = [name for name in exports.PAIR_COLUMNS if name not in (*REALSYN, "dataset", "version")]
    buffer = io.BytesIO()
    pq.write_table(table.select([*REALSYN, *rest]), buffer, compression="zstd")
    out.write(buffer.getvalue())
