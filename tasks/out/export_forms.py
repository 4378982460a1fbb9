"""Declare the forms of an export: the ending, the columns and the order of each, and how one file is written."""

from collections.abc import Iterable
from typing import Literal

import pyarrow as pa

from pairmill.catalog.ask.exports import Order
from pairmill.tasks.out.destination import HashingFile
from pairmill.tasks.out.parquet_tables import write_texts, write_with_pictures
from pairmill.tasks.out.pictures import Pictured
from pairmill.tasks.out.text_choice import TextChoice
from pairmill.tasks.out.webdataset_tars import PAIR, Sample, write_tar

Format = Literal["webdataset", "parquet", "texts"]
REALSYN = ("raw_image_url", "text1", "text2", "text3", "syn_text")
SUFFIX = {"webdataset": "tar", "parquet": "parquet", "texts": "parquet"}
WITH_PICTURES = ("webdataset", "parquet")
ONE_TEXT = ("webdataset",)  # forms in which a sample has one text, which --text chooses


def order(format: str, text: TextChoice, shuffle: int | None) -> Order:
    """Return the rows of a form and their order."""
    return Order(format in WITH_PICTURES, format == "webdataset", shuffle, text.each_of)


def write(table: pa.Table, format: str, pictured: Pictured, out: HashingFile, text: TextChoice) -> None:
    """Write rows as one file of a form."""
    if format == "webdataset":
        name = "sample" if text.each else PAIR.name
        write_tar(table.to_pylist(), pictured, out, Sample(name, text))
    elif format == "parquet":
        write_with_pictures(table, table_columns(table.column_names), PAIR.name, pictured, out)
    else:
        write_texts(table, table_columns(table.column_names), out)


def table_columns(names: Iterable[str]) -> list[str]:
    """Return the columns of a Parquet table, RealSyn's first."""
    left_out = (*REALSYN, "dataset", "version", "shard", "format")
    return [*REALSYN, *(name for name in names if name not in left_out)]
