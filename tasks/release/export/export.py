"""Export a published dataset: WebDataset tars for training, or Parquet tables in RealSyn's columns.

Files are numbered and written one after another, each complete or absent. `.progress.json` lists the finished ones, so
a killed export resumes; `.manifest.json` comes last, so an export without it is unfinished. Equal versions give equal
bytes, manifest included. A mark file, written first, identifies the export: an export never overwrites another export
or other files. The names of these three begin with a dot, so that loaders skip them.
"""

import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries import datasets
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.explain.why_texts import captions_of
from pairmill.catalog.queries.export import exports
from pairmill.catalog.queries.figures.report import plan_of
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.mark import MARK
from pairmill.catalog.write import lease
from pairmill.tasks.release.export import export_forms
from pairmill.tasks.release.export.croissant import CROISSANT, croissant, of_version
from pairmill.tasks.release.export.dataset_card import dataset_card
from pairmill.tasks.release.export.destination import MANIFEST, PROGRESS, Destination, Written
from pairmill.tasks.release.export.export_forms import SUFFIX, WITH_PICTURES, Format
from pairmill.tasks.release.export.export_place import (
    check_place,
    finished,
    grown_files,
    head_of,
    listed_files,
    whose_export,
    whose_growing,
)
from pairmill.tasks.release.export.parquet_tables import IMAGE
from pairmill.tasks.release.export.pictures import Pictured, with_pictures
from pairmill.tasks.release.export.shuffled_pictures import ShuffledPictures
from pairmill.tasks.release.export.text_choice import TextChoice, text_choice
from pairmill.tasks.release.export.webdataset_tars import PAIR, Sample
from pairmill.tasks.release.gallery.concepts import Concept

Captions = Literal["chosen", "all"]
TAR_ROWS, TAR_BYTES = 10_000, 1_000_000_000
LISTED = "listed"  # the digest of a file whose rows cannot change
TABLE_ROWS = 100_000  # some 100 MB of texts a file, all of it in memory


@dataclass(frozen=True)
class Exported:
    """A finished export at ``uri``: its numbers of files, rows (pairs or documents) and bytes, without the manifest."""

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
    shuffle: int | None = None,
    gaps: Sequence[Concept] = (),
    grow: bool = False,
) -> Exported:
    """Write version ``version`` (None: the newest) of dataset ``name`` to the folder or s3:// prefix ``to``.

    ``to`` must be empty or have this lake's export of that version in that format, finished or not. Finished files are
    not written again.

    webdataset: `NAME-vV-000000.tar` of at most 10,000 samples and 1 GB, each `{image_id}.jpg` (the original bytes,
    whatever their format), `.json` (all columns of the pair) and `.txt` (text1). parquet: `NAME-vV-000000.parquet` of
    at most 1 GB: the column `image` of {bytes, path}, RealSyn's columns, then ids, texts, statuses and similarities.
    Both are in the order of the shards that have the bytes, so neighbours come from near documents: shuffle while
    training. texts: the same tables without `image`, by image_id. obelics: the documents of the kept pictures as
    OBELICS' parallel lists, by `write_documents`.

    ``captions`` 'all' adds a column `captions`, also to the `.json`: for each captioner that captioned the image, in
    the recipe's order, its name, text (NULL unless its status is ok), status, and similarity where the lake has one.

    ``text`` is the text of a sample's `.txt`, as `text_choice` reads it: a column, one of several by chance, drawn by
    each image's id, or each of several, which repeats the sample as `{image_id}-{column}`.

    ``shuffle`` is the seed of a shuffle of all rows over all files, by `ShuffledPictures`: the same on every machine.
    The up to 5 samples from which `datasets` learns a tar's types stay first.

    ``gaps`` are concepts that `concepts` counted, for the Croissant description.

    ``grow``: the folder is for all versions that the version's recipe makes, and gets the files `NAME-000000.tar`. Rows
    that are new since an earlier version go into further files. A file of which a row has changed is written anew; once
    a row is gone, so are all files behind it, so that a removal reaches them.

    Runs in one process; memory is one file's rows and their images from one shard, 1 GB at most. Holds the lease while
    it writes (waits ``wait_seconds`` for it): the export is recorded in ``exports``, and no takedown may happen in
    between.

    Raises PairmillError when the dataset does not exist, the destination cannot be written or has other content, an
    image's bytes are gone, or the version was amended meanwhile; LeaseHeld when another process keeps the lease.
    """
    export_forms.check_choices(format, text, captions, shuffle, grow)
    given = {"captions": (captions, "chosen"), "text": (text, "text1"), "shuffle": (shuffle, None)}
    more = {name: value for name, (value, default) in given.items() if value != default}
    if lake.read_only:
        raise PairmillError(
            f"lake '{lake.uri}' is open for reading only; open it to write: an export is put on record."
        )
    dataset = datasets.find(lake, name if version is None else f"{name}@{version}")
    chosen = text_choice(text, dataset.n_texts)
    with_captions = captions_of(lake, dataset) if captions == "all" else ""
    place, whose = Destination(to), whose_export(lake, dataset, format, more)
    if grow:
        whose = whose_growing(lake, plan_of(lake, dataset).recipe, format, more)
        more |= {"recipe": whose["recipe"]}
    head = head_of(dataset, format, more)
    check_place(place, lake, whose, head, dataset.amended or grow)
    with lease.writing(lake, uuid.uuid4().hex, f"export {dataset}", wait_seconds):
        files = finished(place, head) or _write_all(lake, dataset, place, head, progress, whose, with_captions, chosen)
        _describe(lake, dataset, place, head, files, gaps)
        rows, n_bytes = sum(file.rows for file in files), sum(file.bytes for file in files)
        found = Exported(place.uri, len(files), rows, n_bytes)
        exports.record(lake, dataset, format, found.uri, found.files, found.rows, found.bytes)
    place.write_list(MANIFEST, head, files)
    if not grow:
        place.remove(PROGRESS)
    return found


def _describe(
    lake: Lake,
    dataset: Dataset,
    place: Destination,
    head: dict[str, Any],
    files: list[Written],
    gaps: Sequence[Concept],
) -> None:
    """Write what describes the export: its checksums, its dataset card, and its Croissant JSON-LD."""
    format, title = head["format"], dataset.name if "recipe" in head else str(dataset)
    about = f"Image-text pairs, curated by Pairmill: {'the dataset' if 'recipe' in head else 'version'} {title}."
    shown = export_forms.shown_columns(format, "captions" in head, dataset.n_texts)
    names = f"{_stem_of(dataset, head)}*.{SUFFIX[format]}"
    place.write_checksums(files)
    sample = Sample(PAIR.name, head.get("text", PAIR.text))
    place.write_card(dataset_card(title, about, format, names, shown, sample))
    fields = [] if format == "webdataset" else [*([IMAGE] if format == "parquet" else []), *shown]
    place.write_json(CROISSANT, croissant(of_version(lake, dataset, about, gaps), names, fields))


def stem(dataset: Dataset) -> str:
    """Return the beginning of the names of a version's data files."""
    return f"{dataset.name}-v{dataset.version}-"


def _stem_of(dataset: Dataset, head: dict[str, Any]) -> str:
    """Return the beginning of the names of the export's data files."""
    return f"{dataset.name}-" if "recipe" in head else stem(dataset)


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
    """Write the files that progress.json does not list yet, or whose rows have changed; return all files."""
    format, shuffle, grows = head["format"], head.get("shuffle"), "recipe" in head
    place.prepare()
    place.write_json(MARK, whose)
    export_forms.gather(lake, dataset, format, text, shuffle, grows, with_captions)
    try:
        sizes = exports.sizes(lake)
        if grows:
            files, digests = grown_files(lake, place, len(sizes))
        else:
            files = listed_files(place, place.read_json(PROGRESS), head)
            digests = [LISTED] * len(files)
        place.remove(MANIFEST)
        place.write_list(PROGRESS, head | {"digests": digests}, files)
        cuts = list(spans(sizes, format))
        if grows:
            ends = np.cumsum([0, *(file.rows for file in files)]).tolist()
            new = spans(sizes[ends[-1] :], format)
            cuts = [*pairwise(ends), *((ends[-1] + first, ends[-1] + last) for first, last in new)]
        with _picture_source(lake, cuts, sizes, format, shuffle) as pictured_in:
            for number, (first, last) in enumerate(cuts):
                progress(first, len(sizes))
                if number < len(files) and digests[number]:
                    continue
                name = f"{_stem_of(dataset, head)}{number:06d}.{SUFFIX[format]}"
                table = exports.portion(lake, first, last)
                with place.file(name) as out:
                    n_rows = export_forms.write(table, format, pictured_in(number), out, text)
                files[number : number + 1] = [out.written(name, n_rows)]
                digests[number : number + 1] = [exports.digest(lake, first, last) if grows else LISTED]
                place.write_list(PROGRESS, head | {"digests": digests}, files)
    finally:
        exports.release(lake)
    _remove_strays(place, _stem_of(dataset, head), files)
    progress(len(sizes), len(sizes))
    return files


@contextmanager
def _picture_source(
    lake: Lake, cuts: list[tuple[int, int]], sizes: np.ndarray, format: str, shuffle: int | None
) -> Iterator[Callable[[int], Pictured]]:
    """Yield a function from a file's number to what reads the pictures of its rows."""
    paths = export_forms.picture_paths(lake, format)
    if shuffle is None or format not in WITH_PICTURES:
        yield lambda number: partial(with_pictures, paths=paths)
        return
    with ShuffledPictures(lake, [last for _, last in cuts], sizes, paths) as pictures:
        yield lambda number: partial(pictures.read, number)


def _remove_strays(place: Destination, stem: str, files: list[Written]) -> None:
    """Remove files of an earlier, larger state of this export."""
    known = {file.name for file in files}
    ours = re.compile(rf"{re.escape(stem)}\d{{6}}\.(tar|parquet|json)")
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
        if format in WITH_PICTURES:
            before = ends[first - 1] if first else 0
            last = max(first + 1, min(last, int(np.searchsorted(ends, before + TAR_BYTES, side="right"))))
        yield first, last
        first = last
