"""Export a captioner's captions as WebDataset tars with the images, or as Parquet tables.

Captions of later runs go into further files; finished files are not written again. `.progress.json` lists the finished
files with a digest of their rows, so a killed export resumes; `.manifest.json` comes last. A mark file identifies the
export. A file whose rows have changed is rewritten. After the removal of an image all later files are rewritten too: a
takedown must reach them.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries import captioned
from pairmill.catalog.queries.export import caption_rows, exports
from pairmill.catalog.queries.export.caption_rows import CAPTION_COLUMNS
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.mark import MARK
from pairmill.tasks.release.export.croissant import CROISSANT, Description, croissant
from pairmill.tasks.release.export.dataset_card import dataset_card
from pairmill.tasks.release.export.destination import MANIFEST, PROGRESS, Destination, HashingFile, Written
from pairmill.tasks.release.export.export import spans
from pairmill.tasks.release.export.export_forms import SUFFIX
from pairmill.tasks.release.export.export_place import LAYOUT
from pairmill.tasks.release.export.parquet_tables import IMAGE, write_texts, write_with_pictures
from pairmill.tasks.release.export.pictures import Pictured, with_pictures
from pairmill.tasks.release.export.webdataset_tars import Sample, write_tar

Format = Literal["webdataset", "parquet", "texts"]
SAMPLE = Sample("sha256", "caption", CAPTION_COLUMNS)
_ABOUT = "A caption for each picture, by Pairmill; `prompt` is what was asked."
_FILE = re.compile(r"captions-\d{6}\.(tar|parquet)")


@dataclass(frozen=True)
class CaptionsExported:
    """A finished export at ``uri``: its files, captions and bytes; ``left_out`` counts other captions by status."""

    uri: str
    files: int
    rows: int
    bytes: int
    left_out: dict[str, int]

    @property
    def said(self) -> str:
        """A one-line summary for people."""
        left = ", ".join(f"{n:,} {status}" for status, n in self.left_out.items())
        also = f"; left out, as they stand in the lake: {left}" if left else ""
        return f"{self.uri}: {self.rows:,} captions in {self.files:,} files, {self.bytes / 1e6:,.1f} MB{also}"


def check_captions_place(lake: Lake, scorer: str, to: str, format: Format) -> None:
    """Raise PairmillError unless ``to`` is empty or has this lake's captions of this captioner in that format."""
    place = Destination(to)
    if f"{place.uri}/".startswith(lake.data_path):
        raise PairmillError(f"'{place.uri}' lies in the data of the lake itself. Give another folder.")
    place.prepare()
    names = [name for name in place.names() if name != f"{MARK}.part"]
    if names and (MARK not in names or place.read_json(MARK) != _whose(lake, scorer, format)):
        raise PairmillError(
            f"'{place.uri}' is not empty (there is '{names[0]}') and does not hold these captions as {format}: another "
            "model, prompt, lake or format has a folder of its own. Give another folder, or empty this one."
        )


def export_captions(
    lake: Lake,
    scorer: str,
    to: str,
    format: Format = "webdataset",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> CaptionsExported:
    """Write the captions of ``scorer`` with status ok to the folder or s3:// prefix ``to``. The caller holds the lease.

    Each distinct image is one row, however often it occurs. Memory is as for a dataset's export.

    webdataset: `captions-000000.tar` of at most 10,000 samples and 1 GB, each `{sha256}.jpg` (the original bytes,
    whatever their format), `.txt` (the caption) and `.json` (CAPTION_COLUMNS). parquet: `captions-000000.parquet` of at
    most 1 GB, the column `image` of {bytes, path} and the same columns. texts: the same tables without `image`.

    Raises PairmillError when the destination cannot be written or has other content, or when an image's bytes are gone.
    """
    check_captions_place(lake, scorer, to, format)
    place = Destination(to)
    caption_rows.gather(lake, scorer)
    try:
        files = _write_new(lake, scorer, place, format, progress)
        origins = caption_rows.origins(lake)
    finally:
        caption_rows.release(lake)
    left_out = {status: n for status, n in captioned.by_status(lake, scorer).items() if status != "ok"}
    n_rows, n_bytes = sum(file.rows for file in files), sum(file.bytes for file in files)
    caption_rows.record(lake, scorer, format, place.uri, len(files), n_rows, n_bytes)
    head = _head(lake, scorer, format) | {"rows": n_rows, "left_out": left_out}
    place.write_checksums(files)
    place.write_card(_card(format))
    place.write_json(CROISSANT, _croissant(lake, scorer, format, origins, left_out))
    place.write_list(MANIFEST, head, files)
    return CaptionsExported(place.uri, len(files), n_rows, n_bytes, left_out)


def _card(format: str) -> str:
    """Return the export's dataset card."""
    return dataset_card("Captions", _ABOUT, format, f"captions-*.{SUFFIX[format]}", CAPTION_COLUMNS, SAMPLE)


def _croissant(
    lake: Lake, scorer: str, format: str, origins: tuple[list[str], list[str]], left_out: dict[str, int]
) -> dict[str, Any]:
    """Return the export's Croissant description; it has no counts of rows, as the card."""
    model, settings = _captioner(lake, scorer)
    steps = [f"Captioner of Pairmill: {model}, {settings}", *(f"left out: {n} {kind}" for kind, n in left_out.items())]
    said = Description("captions", f"{LAYOUT}.0.0", _ABOUT, caption_rows.captioned_at(lake, scorer), *origins, steps)
    fields = [] if format == "webdataset" else [*([IMAGE] if format == "parquet" else []), *CAPTION_COLUMNS]
    return croissant(said, f"captions-*.{SUFFIX[format]}", fields)


def _captioner(lake: Lake, scorer: str) -> tuple[str, str]:
    """Return the model and the settings (JSON text) of a captioner."""
    rows = lake.query("SELECT model, settings FROM scorers WHERE digest = ? LIMIT 1", (scorer,))
    return rows[0] if rows else ("", "{}")


def _whose(lake: Lake, scorer: str, format: str) -> dict[str, Any]:
    """Return the content of the export's mark file: lake, captioner and format."""
    return {"lake": exports.lake_id(lake), "captions": scorer, "format": format}


def _head(lake: Lake, scorer: str, format: str) -> dict[str, Any]:
    """Return the head of a file list: the mark's content, and the model and settings of the captioner."""
    model, settings = _captioner(lake, scorer)
    return {**_whose(lake, scorer, format), "layout": LAYOUT, "model": model, "settings": json.loads(settings)}


def _write_new(
    lake: Lake, scorer: str, place: Destination, format: Format, progress: Callable[[int, int], None]
) -> list[Written]:
    """Write the files that are missing or outdated; return all files."""
    place.write_json(MARK, _whose(lake, scorer, format))
    head = _head(lake, scorer, format)
    sizes = caption_rows.sizes(lake)
    files, digests = _listed(lake, place, len(sizes))
    done = sum(file.rows for file in files)
    ends = np.cumsum([file.rows for file in files]).tolist()
    todo = [(n, end - file.rows, end) for n, (file, end) in enumerate(zip(files, ends, strict=True)) if not digests[n]]
    todo += [(len(files) + n, done + first, done + last) for n, (first, last) in enumerate(spans(sizes[done:], format))]
    if todo or not files:
        place.remove(MANIFEST)  # outdated from here on
        place.write_list(PROGRESS, head | {"digests": digests}, files)  # marks the outdated files as such
        place.remove_former_lists()
    first_new = min((first for _, first, _ in todo), default=len(sizes))
    paths = caption_rows.picture_paths(lake, first_new) if format != "texts" else {}
    for n, first, last in todo:
        progress(first, len(sizes))
        name = f"captions-{n:06d}.{SUFFIX[format]}"
        table = caption_rows.portion(lake, first, last)
        with place.file(name) as out:
            _write(table, format, partial(with_pictures, paths=paths), out)
        files[n : n + 1] = [out.written(name, table.num_rows)]
        digests[n : n + 1] = [caption_rows.digest(lake, first, last)]
        place.write_list(PROGRESS, head | {"digests": digests}, files)
    known = {file.name for file in files}
    for name in place.names():
        if _FILE.fullmatch(name) and name not in known:
            place.remove(name)
    progress(len(sizes), len(sizes))
    return files


def _listed(lake: Lake, place: Destination, n_rows: int) -> tuple[list[Written], list[str]]:
    """Return the finished files that still have rows, and the digest of each file's rows.

    The digest is '' for a file that is missing or whose rows have changed.
    """
    listing, files, digests, first = place.read_json(PROGRESS), [], [], 0
    if listing.get("layout") != LAYOUT:
        return [], []
    for row, was in zip(listing.get("files", []), listing.get("digests", []), strict=False):
        file = Written(**row)
        last = first + file.rows
        if last > n_rows:
            break
        holds = was == caption_rows.digest(lake, first, last) and place.holds(file)
        files.append(file)
        digests.append(was if holds else "")
        first = last
    return files, digests


def _write(table: pa.Table, format: Format, pictured: Pictured, out: HashingFile) -> None:
    """Write captions as one file."""
    if format == "webdataset":
        write_tar(table.to_pylist(), pictured, out, SAMPLE)
    elif format == "parquet":
        write_with_pictures(table, CAPTION_COLUMNS, SAMPLE.name, pictured, out)
    else:
        write_texts(table, CAPTION_COLUMNS, out)
