"""Write rows as a Parquet table, with the pictures as `datasets` and the Hugging Face Hub read them, or texts alone."""

import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pairmill.tasks.release.export.destination import HashingFile
from pairmill.tasks.release.export.pictures import Pictured

IMAGE = "image"
# The storage type of `datasets.Image`. The schema's metadata names the feature, without which the column is a struct.
_TYPE = pa.struct({"bytes": pa.binary(), "path": pa.string()})
_METADATA = {"huggingface": json.dumps({"info": {"features": {IMAGE: {"_type": "Image"}}}})}
# A viewer reads a whole row group to show one page; the Hub refuses to show groups of more than 300 MB.
GROUP_ROWS, GROUP_BYTES = 1_000, 64_000_000
_EXTENSION = {"jpeg": "jpg", "tiff": "tif"}


def write_texts(table: pa.Table, columns: Sequence[str], out: HashingFile) -> None:
    """Write ``columns`` of the table, without pictures."""
    buffer = io.BytesIO()
    pq.write_table(table.select(list(columns)), buffer, compression="zstd")
    out.write(buffer.getvalue())


def write_with_pictures(
    table: pa.Table, columns: Sequence[str], name: str, pictured: Pictured, out: HashingFile
) -> None:
    """Write one Parquet file: the column `image`, with pictures from ``pictured``, then ``columns`` of the table.

    `image` is {bytes, path}; its path is the value of column ``name`` with the picture's ending. Row groups have
    GROUP_ROWS rows or GROUP_BYTES at most, at least one row. Memory and errors are those of ``pictured``.
    """
    texts = table.select(list(columns))
    schema = pa.schema([pa.field(IMAGE, _TYPE), *texts.schema], metadata=_METADATA)
    keys = table.select([name, "sha256", "format", "shard"]).to_pylist()
    sink = pa.PythonFile(ByteSink(out), "w")
    encoded: Any = {"use_dictionary": list(columns), "write_statistics": list(columns)}  # pictures do not repeat
    with pq.ParquetWriter(sink, schema, compression="zstd", **encoded) as writer:
        first = 0
        for images in _groups(keys, name, pictured):
            group = texts.slice(first, len(images))
            writer.write_table(pa.table([pa.array(images, _TYPE), *group.columns], schema=schema))
            first += len(images)


def _groups(keys: list[dict[str, Any]], name: str, pictured: Pictured) -> Iterator[list[dict]]:
    """Yield the images of each row group in order."""
    group: list[dict] = []
    size = 0
    for row, data in pictured(keys):
        if group and (len(group) == GROUP_ROWS or size + len(data) > GROUP_BYTES):
            yield group
            group, size = [], 0
        ending = _EXTENSION.get(row["format"], row["format"])
        group.append({"bytes": data, "path": f"{row[name]}.{ending}"})
        size += len(data)
    if group:
        yield group


class ByteSink(io.RawIOBase):
    """A write-only stream over a HashingFile, as Arrow wants it."""

    def __init__(self, out: HashingFile) -> None:
        self._out = out

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any) -> int:
        """Write bytes; return their number."""
        return self._out.write(bytes(data))

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self._out.n_bytes
