"""Export a published dataset: WebDataset tars for training, or Parquet tables in RealSyn's columns.

Files are numbered and written one after another, each complete or absent. `.progress.json` lists the finished ones, so
a killed export resumes; `.manifest.json` comes last, so an export without it is unfinished. Equal versions give equal
bytes, manifest included. A mark file, written first, identifies the export: an export never overwrites another export
or other files. The names of these three begin with a dot, so that loaders skip them.
"""

import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from pairmill.catalog.ask import datasets, exports
from pairmill.catalog.ask.all_captions import captions_of
from pairmill.catalog.ask.datasets import Dataset
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.mark import EXPORT_FILE, FORMER_EXPORT_LISTS, MARK
from pairmill.catalog.write import lease
from pairmill.tasks.out.dataset_card import dataset_card
from pairmill.tasks.out.destination import MANIFEST, PROGRESS, Destination, HashingFile, Written
from pairmill.tasks.out.parquet_tables import write_texts, write_with_pictures
from pairmill.tasks.out.text_choice import TextChoice, text_choice
from pairmill.tasks.out.webdataset_tars import PAIR, Sample, write_tar

Format = Literal["webdataset", "parquet", "texts"]
Captions = Literal["chosen", "all"]
LAYOUT = 2  # of files and members; an export of an older layout is written anew, because loaders want one layout
TAR_ROWS, TAR_BYTES = 10_000, 1_000_000_000
TABLE_ROWS = 100_000  # some 100 MB of texts a file, all of it in memory
REALSYN = ("raw_image_url", "text1", "text2", "text3", "syn_text")
SUFFIX = {"webdataset": "tar", "parquet": "parquet", "texts": "parquet"}


@dataclass(frozen=True)
class Exported:
    """A finished export at ``uri``: its numbers of files, pairs and bytes, without the manifest."""

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
    captions: Captions = "chosen",
    text: str = "text1",
) -> Exported:
    """Write version ``version`` (None: the newest) of dataset ``name`` to the folder or s3:// prefix ``to``.

    ``to`` must be empty or have this lake's export of that version in that format, finished or not. Finished files are
    not written again.

    webdataset: `NAME-vV-000000.tar` of at most 10,000 samples and 1 GB, each `{image_id}.jpg` (the original bytes,
    whatever their format), `.json` (all columns of the pair) and `.txt` (text1). parquet: `NAME-vV-000000.parquet` of
    at most 1 GB: the column `image` of {bytes, path}, RealSyn's columns, then ids, texts, statuses and similarities.
    Both are in the order of the shards that have the bytes, so neighbours come from near documents: shuffle while
    training. texts: the same tables without `image`, by image_id.

    ``captions`` 'all' adds a column `captions`, also to the `.json`: for each captioner that captioned the image, in
    the recipe's order, its name, text (NULL unless its status is ok), status, and similarity where the lake has one.

    ``text`` is the text of a sample's `.txt`, as `text_choice` reads it: a column, or several by chance, drawn by each
    image's id.

    Runs in one process; memory is one file's rows and their images from one shard, 1 GB at most. Holds the lease while
    it writes (waits ``wait_seconds`` for it): the export is recorded in ``exports``, and no takedown may happen in
    between.

    Raises PairmillError when the dataset does not exist, the destination cannot be written or has other content, an
    image's bytes are gone, or the version was amended meanwhile; LeaseHeld when another process keeps the lease.
    """
    if format not in SUFFIX:
        raise PairmillError(f"there is no export format '{format}'; write {' or '.join(SUFFIX)}.")
    chosen = text_choice(text)
    if text != "text1" and format != "webdataset":
        raise PairmillError(f"--text chooses the .txt of tars, and {format} has a column for each text. Leave it out.")
    more = {**({} if captions == "chosen" else {"captions": captions}), **({} if text == "text1" else {"text": text})}
    if lake.read_only:
        raise PairmillError(
            f"lake '{lake.uri}' is open for reading only; open it to write: an export is put on record."
        )
    dataset = datasets.find(lake, name if version is None else f"{name}@{version}")
    with_captions = captions_of(lake, dataset) if captions == "all" else ""
    place, whose = Destination(to), _whose(lake, dataset, format, more)
    head = _head(dataset, format, more)
    _check_place(place, lake, whose, head, dataset.amended)
    with lease.writing(lake, uuid.uuid4().hex, f"export {dataset}", wait_seconds):
        files = _finished(place, head) or _write_all(lake, dataset, place, head, progress, whose, with_captions, chosen)
        place.write_card(_card(dataset, format, captions))
        found = Exported(place.uri, len(files), sum(file.rows for file in files), sum(file.bytes for file in files))
        exports.record(lake, dataset, format, found.uri, found.files, found.rows, found.bytes)
    place.write_list(MANIFEST, head, files)
    place.remove(PROGRESS)
    return found


def _card(dataset: Dataset, format: str, captions: str) -> str:
    """Return the export's dataset card."""
    columns = [*_columns(exports.PAIR_COLUMNS), *(["captions"] if captions == "all" else [])]
    about = f"Image-text pairs, curated by Pairmill: version {dataset}."
    return dataset_card(str(dataset), about, format, f"{_stem(dataset)}*.{SUFFIX[format]}", columns, PAIR)


def _stem(dataset: Dataset) -> str:
    """Return the beginning of the names of the export's data files."""
    return f"{dataset.name}-v{dataset.version}-"


def _whose(lake: Lake, dataset: Dataset, format: str, more: dict[str, str]) -> dict[str, Any]:
    """Return the content of the export's mark file: lake and dataset. An amended version stays the same export.

    ``more`` are choices other than the default ones, which lists of older versions do not name.
    """
    holds = {"dataset": dataset.name, "version": dataset.version, "format": format, **more}
    return {"lake": exports.lake_id(lake), **holds}


def _check_place(place: Destination, lake: Lake, whose: dict[str, Any], head: dict[str, Any], amended: bool) -> None:
    """Raise PairmillError unless the folder is empty or has this very export; without a mark its lists decide."""
    if f"{place.uri}/".startswith(lake.data_path):
        raise PairmillError(f"'{place.uri}' lies in the data of the lake itself. Give another folder.")
    names = [name for name in place.names() if name != f"{MARK}.part"]
    if not names:
        return
    lists = (MARK, MANIFEST, PROGRESS, *FORMER_EXPORT_LISTS)
    held = [place.read_json(name) for name in lists if name in names]
    # A copied lake has the same id: versions that both published since then differ in their content digest.
    if held and held[0] == whose and (amended or all(_is_of(each, head, "content_digest") for each in held[1:])):
        return
    known = [key for key in head if key != "layout"]
    if held and MARK not in names and all(_is_of(each, head, *known) for each in held):
        return  # written by an older Pairmill, which wrote no mark
    if told := next((each for each in held if each.keys() >= {"dataset", "version", "format"}), None):
        kind = " with all captions" if "captions" in told else ""
        kind += f" with the text {told['text']}" if "text" in told else ""
        same = _is_of(told, whose, "dataset", "version", "format") and all(
            told.get(name) == whose.get(name) for name in ("captions", "text")
        )
        other = " of another lake, or of other content" if same else ""
        it = f"holds the export of {told['dataset']}@{told['version']} as {told['format']}{kind}{other}"
    else:
        it = f"is not empty (there is '{names[0]}'), and an export is written into a folder of its own"
    raise PairmillError(f"'{place.uri}' {it}. Give another folder, or empty this one.")


def _is_of(listing: dict[str, Any], head: dict[str, Any], *keys: str) -> bool:
    """Return whether a list has the values of ``head`` for ``keys``."""
    return all(key in listing and listing[key] == head[key] for key in keys)


def _head(dataset: Dataset, format: str, more: dict[str, str]) -> dict[str, Any]:
    """Return the part of the manifest that identifies an export."""
    return {
        "dataset": dataset.name,
        "version": dataset.version,
        "format": format,
        "content_digest": dataset.content_digest,
        "rows": dataset.n_pairs,
        "layout": LAYOUT,
        **more,
    }


def _finished(place: Destination, head: dict[str, Any]) -> list[Written]:
    """Return the files of a finished export of this content, else []."""
    manifest = place.read_json(MANIFEST)
    return _listed_files(place, manifest, head) if manifest.get("files") else []


def _listed_files(place: Destination, listing: dict[str, Any], head: dict[str, Any]) -> list[Written]:
    """Return the files of a manifest or progress.json if it is of this content and all files exist, else []."""
    if any(listing.get(key) != value for key, value in head.items()):
        return []
    files = [Written(**file) for file in listing.get("files", [])]
    return files if all(place.holds(file) for file in files) else []


def _write_all(
    lake: Lake,
    dataset: Dataset,
    place: Destination,
    head: dict[str, Any],
    progress: Callable[[int, int], None],
    whose: dict[str, Any],
    with_captions: str,
    text: TextChoice,
) -> list[Written]:
    """Write the files that progress.json does not list yet; return all files."""
    format = head["format"]
    has_pictures = format != "texts"
    place.prepare()
    place.write_json(MARK, whose)
    files = _listed_files(place, place.read_json(PROGRESS), head)
    place.remove(MANIFEST)
    place.write_list(PROGRESS, head, files)
    place.remove_former_lists()
    exports.gather(lake, dataset, has_pictures, with_captions, typical_first=format == "webdataset")
    try:
        paths = exports.picture_paths(lake) if has_pictures else {}
        for number, (first, last) in enumerate(spans(exports.sizes(lake), format)):
            progress(first, dataset.n_pairs)
            if number < len(files):
                continue
            name = f"{_stem(dataset)}{number:06d}.{SUFFIX[format]}"
            table = exports.portion(lake, first, last)
            with place.file(name) as out:
                _write(table, format, paths, out, Sample(text=text))
            files.append(out.written(name, table.num_rows))
            place.write_list(PROGRESS, head, files)
    finally:
        exports.release(lake)
    _remove_strays(place, dataset, files)
    progress(dataset.n_pairs, dataset.n_pairs)
    return files


def _remove_strays(place: Destination, dataset: Dataset, files: list[Written]) -> None:
    """Remove files of an earlier, larger state of this version."""
    known = {file.name for file in files}
    ours = re.compile(rf"(?={re.escape(_stem(dataset))}).+?{EXPORT_FILE}")
    for name in place.names():
        if ours.fullmatch(name) and name not in known:
            place.remove(name)


def spans(sizes: np.ndarray, format: Format) -> Iterator[tuple[int, int]]:
    """Divide pairs into files; yield each file's (first, end) rows, at least one row a file."""
    most_rows = TAR_ROWS if format == "webdataset" else TABLE_ROWS
    ends = np.cumsum(sizes)
    first = 0
    while first < len(sizes):
        last = min(first + most_rows, len(sizes))
        if format != "texts":
            before = ends[first - 1] if first else 0
            last = max(first + 1, min(last, int(np.searchsorted(ends, before + TAR_BYTES, side="right"))))
        yield first, last
        first = last


def _write(table: pa.Table, format: str, paths: dict[str, tuple[str, ...]], out: HashingFile, sample: Sample) -> None:
    """Write pairs as one file."""
    if format == "webdataset":
        write_tar(table.to_pylist(), paths, out, sample)
    elif format == "parquet":
        write_with_pictures(table, _columns(table.column_names), PAIR.name, paths, out)
    else:
        write_texts(table, _columns(table.column_names), out)


def _columns(names: Iterable[str]) -> list[str]:
    """Return the columns of a Parquet table, RealSyn's first."""
    left_out = (*REALSYN, "dataset", "version", "shard", "format")
    return [*REALSYN, *(name for name in names if name not in left_out)]
