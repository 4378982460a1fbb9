"""Write rows as a Parquet table: texts alone, with pictures as `datasets` and the Hub read them, or documents."""

import io
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pairmill.tasks.release.export.destination import ExportFile
from pairmill.tasks.release.export.pictures import EXPORTED, Pictured, Row

IMAGE = "image"
# The storage type of `datasets.Image`. The schema's metadata names the feature, without which the column is a struct.
_TYPE = pa.struct({"bytes": pa.binary(), "path": pa.string()})
_METADATA = {"huggingface": json.dumps({"info": {"features": {IMAGE: {"_type": "Image"}}}})}
# A viewer reads a whole row group to show one page; the Hub refuses to show groups of more than 300 MB.
GROUP_ROWS, GROUP_BYTES = 1_000, 64_000_000
_EXTENSION = {"jpeg": "jpg", "tiff": "tif"}
OBELICS_COLUMNS = ("images", "metadata", "general_metadata", "texts", "image_bytes")
_STRINGS, _BYTES = pa.list_(pa.string()), pa.list_(pa.binary())
_OBELICS = pa.schema(zip(OBELICS_COLUMNS, (_STRINGS, pa.string(), pa.string(), _STRINGS, _BYTES), strict=True))


def write_texts(table: pa.Table, columns: Sequence[str], out: ExportFile) -> None:
    """Write ``columns`` of ``table`` to ``out``, as one Parquet file without pictures."""
    buffer = io.BytesIO()
    pq.write_table(table.select(list(columns)), buffer, compression="zstd")
    out.write(buffer.getvalue())


def write_with_pictures(table: pa.Table, columns: Sequence[str], pictured: Pictured, out: ExportFile) -> None:
    """Write one Parquet file: `image`, with pictures from ``pictured``, then ``columns`` of the table, then EXPORTED.

    `image` is {bytes, path}; its path is the image's id with the picture's ending. Row groups have GROUP_ROWS rows or
    GROUP_BYTES at most, but at least one row. Memory and errors are those of ``pictured``.
    """
    texts = table.select(list(columns))
    added = [pa.field(name, pa.string()) for name in EXPORTED]
    schema = pa.schema([pa.field(IMAGE, _TYPE), *texts.schema, *added], metadata=_METADATA)
    keys = table.select(["image_id", "sha256", "format", "shard"]).to_pylist()
    encoded: Any = {"use_dictionary": list(columns), "write_statistics": list(columns)}  # pictures do not repeat
    pictures = (
        (row | {"bytes": data, "path": f"{row['image_id']}.{_EXTENSION.get(row['format'], row['format'])}"}, len(data))
        for row, data in pictured(keys)
    )
    with pq.ParquetWriter(pa.PythonFile(out, "w"), schema, compression="zstd", **encoded) as writer:
        first = 0
        for images in _groups(pictures):
            group = texts.slice(first, len(images))
            more = [pa.array([row[name] for row in images], pa.string()) for name in EXPORTED]
            pictures_of = pa.array([{name: row[name] for name in ("bytes", "path")} for row in images], _TYPE)
            writer.write_table(pa.table([pictures_of, *group.columns, *more], schema=schema))
            first += len(images)


def _groups(rows: Iterable[tuple[Row, int]]) -> Iterator[list[Row]]:
    """Divide rows, each with the bytes of its pictures, into row groups of at least one row."""
    group: list[Row] = []
    size = 0
    for row, n_bytes in rows:
        if group and (len(group) == GROUP_ROWS or size + n_bytes > GROUP_BYTES):
            yield group
            group, size = [], 0
        group.append(row)
        size += n_bytes
    if group:
        yield group


def write_documents(table: pa.Table, pictured: Pictured, out: ExportFile) -> None:
    """Write the rows of `gather_documents` as one Parquet file, in row groups as of `write_with_pictures`.

    The columns are those of the data set OBELICS (arXiv 2306.16527, section 3.4): parallel lists in reading order;
    where ``images`` has an address, ``texts`` is null, and the other way round. ``image_bytes``, a third parallel list,
    has the pictures, which OBELICS leaves to a downloader. Memory is the pictures of the file, 1 GB at most; errors are
    those of ``pictured``.
    """
    rows = table.to_pylist()
    shown = [item for row in rows for item in row["items"] if item["sha256"]]
    shown.sort(key=lambda item: (item["shard"] or "", item["sha256"]))
    held = {item["sha256"]: (item, data) for item, data in pictured(shown)}
    documents = [_document(row, held) for row in rows]
    sized = ((each, sum(len(data) for data in each["image_bytes"] if data)) for each in documents)
    with pq.ParquetWriter(pa.PythonFile(out, "w"), _OBELICS, compression="zstd") as writer:
        for group in _groups(sized):
            writer.write_table(pa.Table.from_pylist(group, _OBELICS))


def _document(row: Row, held: dict[str, tuple[Row, bytes]]) -> Row:
    """Return a row of OBELICS' columns, with the pictures ``held`` by sha256; paragraphs between them are one text."""
    pictures: list[Row | None] = []
    texts: list[str | None] = []
    for item in row["items"]:
        if item["sha256"]:
            pictures.append(item | {name: held[item["sha256"]][0][name] for name in EXPORTED})
            texts.append(None)
        elif texts and texts[-1] is not None:
            texts[-1] += f"\n\n{item['text']}"
        else:
            pictures.append(None)
            texts.append(item["text"])
    known = json.loads(row["metadata"] or "{}")  # what came along with the document, such as a licence
    page = known.get("url") or row["page"] or ""  # its address on the web, else its released address
    about = {name: value for name, value in known.items() if name != "images"}
    about |= {"title": row["title"]} if row["title"] else {}
    return {
        "images": [each and each["raw_image_url"] for each in pictures],
        "metadata": _json([each and _about(each, page) for each in pictures]),
        "general_metadata": _json(about | {"url": page, "document_id": row["document_id"]}),
        "texts": texts,
        "image_bytes": [each and held[each["sha256"]][1] for each in pictures],
    }


def _about(item: Row, page: str) -> Row:
    """Return OBELICS' description of a picture, with its generated texts and its id in other exports."""
    address, image_id = item["raw_image_url"], item["image_id"]
    return {
        "document_url": page, "unformatted_src": address, "src": address, "formatted_filename": image_id,
        "alt_text": item["alt_text"] or "", "original_width": item["width"], "original_height": item["height"],
        "format": item["format"], "image_id": image_id, "caption": item["caption"], "syn_text": item["syn_text"],
        **{name: item[name] for name in EXPORTED},
    }  # fmt: skip


def _json(value: Any) -> str:
    """Return compact JSON text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
