"""Declare the forms of an export: the ending, the columns and the order of each, and how one file is written."""

from collections.abc import Collection
from typing import Literal

import pyarrow as pa

from pairmill.catalog.ask.exports import RowOrder, pair_columns
from pairmill.catalog.terms import text_columns
from pairmill.tasks.out.destination import HashingFile
from pairmill.tasks.out.llava_conversations import LLAVA_COLUMNS, write_conversations
from pairmill.tasks.out.parquet_tables import write_texts, write_with_pictures
from pairmill.tasks.out.pictures import Pictured
from pairmill.tasks.out.text_choice import TextChoice
from pairmill.tasks.out.webdataset_tars import PAIR, Sample, write_tar

Format = Literal["webdataset", "parquet", "texts", "realsyn", "llava"]
SUFFIX = {"webdataset": "tar", "parquet": "parquet", "texts": "parquet", "realsyn": "parquet", "llava": "json"}
WITH_PICTURES = ("webdataset", "parquet")
ONE_TEXT = ("webdataset", "llava")  # forms in which a sample has one text, which --text chooses


def order(format: str, text: TextChoice, shuffle: int | None) -> RowOrder:
    """Return the rows of a form and their order."""
    return RowOrder(format in WITH_PICTURES, format == "webdataset", shuffle, text.each_of, format == "realsyn")


def write(table: pa.Table, format: str, pictured: Pictured, out: HashingFile, text: TextChoice) -> int:
    """Write rows as one file of a form; return their number, without those that have no text for `llava`."""
    if format == "webdataset":
        name = "sample" if text.each else PAIR.name
        write_tar(table.to_pylist(), pictured, out, Sample(name, text))
    elif format == "llava":
        return write_conversations(table.to_pylist(), text, out)
    elif format == "parquet":
        write_with_pictures(table, table_columns(table.column_names), PAIR.name, pictured, out)
    else:
        columns = realsyn_columns if format == "realsyn" else table_columns
        write_texts(table, columns(table.column_names), out)
    return table.num_rows


def shown_columns(format: str, with_captions: bool, n_texts: int) -> list[str]:
    """Return the columns that the card of a version of ``n_texts`` texts names."""
    if format == "llava":
        return [*LLAVA_COLUMNS]
    columns = [*pair_columns(n_texts)]
    if format == "realsyn":
        return realsyn_columns(columns)
    return [*table_columns(columns), *(["captions"] if with_captions else [])]


def realsyn_columns(names: Collection[str]) -> list[str]:
    """Return RealSyn's columns among ``names``; it has three texts, a version with more has these beside them."""
    return [name for name in ("raw_image_url", *text_columns.texts(), "syn_text") if name in names]


def table_columns(names: Collection[str]) -> list[str]:
    """Return the columns of a Parquet table, RealSyn's first."""
    first = realsyn_columns(names)
    left_out = (*first, "dataset", "version", "shard", "format")
    return [*first, *(name for name in names if name not in left_out)]
