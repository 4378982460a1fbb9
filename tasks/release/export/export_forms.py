"""Declare the forms of an export: the ending, the columns and the order of each, and how one file is written."""

from collections.abc import Collection
from typing import Literal

import pyarrow as pa

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.export import exports
from pairmill.catalog.queries.export.exports import RowOrder, pair_columns
from pairmill.catalog.queries.export.interleaved_rows import SHARDS_OF_ITEMS, gather_documents
from pairmill.catalog.terms import text_columns
from pairmill.catalog.terms.error import PairmillError
from pairmill.tasks.release.export.destination import HashingFile
from pairmill.tasks.release.export.interleaved_tables import OBELICS_COLUMNS, write_documents
from pairmill.tasks.release.export.llava_conversations import LLAVA_COLUMNS, write_conversations
from pairmill.tasks.release.export.parquet_tables import write_texts, write_with_pictures
from pairmill.tasks.release.export.pictures import Pictured
from pairmill.tasks.release.export.text_choice import TextChoice
from pairmill.tasks.release.export.webdataset_tars import PAIR, Sample, write_tar

Format = Literal["webdataset", "parquet", "texts", "realsyn", "llava", "obelics"]
SUFFIX = {"webdataset": "tar", "parquet": "parquet", "texts": "parquet", "realsyn": "parquet", "llava": "json",
          "obelics": "parquet"}  # fmt: skip
WITH_PICTURES = ("webdataset", "parquet", "obelics")
OF_DOCUMENTS = ("obelics",)  # forms whose rows are documents, not pairs
GROWING = ("webdataset", "parquet", "texts")  # forms that a later version may add files to
ONE_TEXT = ("webdataset", "llava")  # forms in which a sample has one text, which --text chooses


def gather(
    lake: Lake, dataset: Dataset, format: str, text: TextChoice, shuffle: int | None, grows: bool, with_captions: str
) -> None:
    """Select a form's rows, pairs or documents, into the temporary table ``export_rows``.

    ``with_captions``: SQL of all captions, as `exports.gather` takes it; '' for none.
    """
    if format in OF_DOCUMENTS:
        gather_documents(lake, dataset)
    else:
        exports.gather(lake, dataset, _order(format, text, shuffle, grows), with_captions)


def picture_paths(lake: Lake, format: str) -> dict[str, tuple[str, ...]]:
    """Return shard -> files that hold the image bytes of ``export_rows``; {} for a form without pictures."""
    if format not in WITH_PICTURES:
        return {}
    return exports.picture_paths(lake, SHARDS_OF_ITEMS) if format in OF_DOCUMENTS else exports.picture_paths(lake)


def check_choices(format: str, text: str, captions: str, shuffle: int | None, grows: bool) -> None:
    """Raise PairmillError if the form is unknown, or does not support one of the options."""
    if format not in SUFFIX:
        raise PairmillError(f"there is no export format '{format}'; write {' or '.join(SUFFIX)}.")
    if text != "text1" and format not in ONE_TEXT:
        held = "the document's own texts" if format in OF_DOCUMENTS else "a column for each"
        raise PairmillError(f"--text chooses a sample's one text, and {format} has {held}. Leave it out.")
    if grows and (format not in GROWING or shuffle is not None):
        raise PairmillError(f"--grow adds files behind the others, for {', '.join(GROWING)} without --shuffle.")
    if format in OF_DOCUMENTS and (captions != "chosen" or shuffle is not None):
        option = "--shuffle mixes" if shuffle is not None else "--captions all adds a column to"
        raise PairmillError(f"{option} pairs, and {format} has whole documents. Leave it out.")


def _order(format: str, text: TextChoice, shuffle: int | None, grows: bool) -> RowOrder:
    """Return the rows of a form and their order."""
    on_the_web = format == "realsyn"
    return RowOrder(format in WITH_PICTURES, format == "webdataset", shuffle, grows, text.each_of, on_the_web)


def write(table: pa.Table, format: str, pictured: Pictured, out: HashingFile, text: TextChoice) -> int:
    """Write rows as one file of a form; return their number, without those that have no text for `llava`."""
    if format == "webdataset":
        name = "sample" if text.each else PAIR.name
        write_tar(table.to_pylist(), pictured, out, Sample(name, text))
    elif format == "llava":
        return write_conversations(table.to_pylist(), text, out)
    elif format == "obelics":
        write_documents(table, pictured, out)
    elif format == "parquet":
        write_with_pictures(table, table_columns(table.column_names), PAIR.name, pictured, out)
    else:
        columns = realsyn_columns if format == "realsyn" else table_columns
        write_texts(table, columns(table.column_names), out)
    return table.num_rows


def shown_columns(format: str, with_captions: bool, n_texts: int) -> list[str]:
    """Return the columns that the dataset card lists; ``n_texts``: number of text columns of the version."""
    if format == "llava":
        return [*LLAVA_COLUMNS]
    if format == "obelics":
        return [*OBELICS_COLUMNS]
    columns = [*pair_columns(n_texts)]
    if format == "realsyn":
        return realsyn_columns(columns)
    return [*table_columns(columns), *(["captions"] if with_captions else [])]


def realsyn_columns(names: Collection[str]) -> list[str]:
    """Return RealSyn's columns among ``names``, in its order; text4 and text5 count if ``names`` has them."""
    return [name for name in ("raw_image_url", *text_columns.texts(), "syn_text") if name in names]


def table_columns(names: Collection[str]) -> list[str]:
    """Return the columns of a Parquet table, RealSyn's first."""
    first = realsyn_columns(names)
    left_out = (*first, "dataset", "version", "shard", "format")
    return [*first, *(name for name in names if name not in left_out)]
