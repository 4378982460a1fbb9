"""Write documents as OBELICS is released: parallel lists of pictures and texts in reading order, as Parquet.

The shape is that of the data set OBELICS (arXiv 2306.16527, section 3.4): where ``images`` has an address, ``texts`` is
null, and the other way round. ``image_bytes``, a third parallel list, holds what OBELICS leaves to a downloader.
"""

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pairmill.tasks.release.export.destination import HashingFile
from pairmill.tasks.release.export.parquet_tables import GROUP_BYTES, GROUP_ROWS, ByteSink
from pairmill.tasks.release.export.pictures import Pictured

OBELICS_COLUMNS = ("images", "metadata", "general_metadata", "texts", "image_bytes")
_STRINGS, _BYTES = pa.list_(pa.string()), pa.list_(pa.binary())
_SCHEMA = pa.schema(zip(OBELICS_COLUMNS, (_STRINGS, pa.string(), pa.string(), _STRINGS, _BYTES), strict=True))


def write_documents(table: pa.Table, pictured: Pictured, out: HashingFile) -> None:
    """Write the rows of `gather_documents` as one Parquet file, in row groups of GROUP_ROWS or GROUP_BYTES at most.

    Memory is the pictures of the file, 1 GB at most; errors are those of ``pictured``.
    """
    rows = table.to_pylist()
    shown = [item for row in rows for item in row["items"] if item["sha256"]]
    shown.sort(key=lambda item: (item["shard"] or "", item["sha256"]))
    held = {item["sha256"]: data for item, data in pictured(shown)}
    with pq.ParquetWriter(pa.PythonFile(ByteSink(out), "w"), _SCHEMA, compression="zstd") as writer:
        for group in _groups([_document(row, held) for row in rows]):
            writer.write_table(pa.Table.from_pylist(group, _SCHEMA))


def _groups(documents: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Divide documents into row groups of at least one row."""
    group: list[dict[str, Any]] = []
    size = 0
    for document in documents:
        more = sum(len(data) for data in document["image_bytes"] if data)
        if group and (len(group) == GROUP_ROWS or size + more > GROUP_BYTES):
            yield group
            group, size = [], 0
        group.append(document)
        size += more
    if group:
        yield group


def _document(row: dict[str, Any], held: dict[str, bytes]) -> dict[str, Any]:
    """Return one row of OBELICS' columns. Paragraphs between two pictures are one text, divided by empty lines."""
    pictures: list[dict[str, Any] | None] = []
    texts: list[str | None] = []
    for item in row["items"]:
        if item["sha256"]:
            pictures.append(item)
            texts.append(None)
        elif texts and texts[-1] is not None:
            texts[-1] += f"\n\n{item['text']}"
        else:
            pictures.append(None)
            texts.append(item["text"])
    page = _page(row)
    return {
        "images": [each and each["raw_image_url"] for each in pictures],
        "metadata": _json([each and _about(each, page) for each in pictures]),
        "general_metadata": _json(_of_document(row) | {"url": page, "document_id": row["document_id"]}),
        "texts": texts,
        "image_bytes": [each and held[each["sha256"]] for each in pictures],
    }


def _of_document(row: dict[str, Any]) -> dict[str, Any]:
    """Return what came along with the document, such as a licence, without what it said of each of its pictures."""
    found = json.loads(row["metadata"] or "{}")
    return {name: value for name, value in found.items() if name != "images"} | (
        {"title": row["title"]} if row["title"] else {}
    )


def _page(row: dict[str, Any]) -> str:
    """Return the document's address on the web where its metadata names one, else its released address, else ''."""
    return json.loads(row["metadata"] or "{}").get("url") or row["page"] or ""


def _about(item: dict[str, Any], page: str) -> dict[str, Any]:
    """Return OBELICS' description of a picture, with its generated texts and its id in other exports."""
    address = item["raw_image_url"]
    return {
        "document_url": page,
        "unformatted_src": address,
        "src": address,
        "formatted_filename": item["image_id"],
        "alt_text": item["alt_text"] or "",
        "original_width": item["width"],
        "original_height": item["height"],
        "format": item["format"],
        "image_id": item["image_id"],
        "caption": item["caption"],
        "syn_text": item["syn_text"],
    }


def _json(value: Any) -> str:
    """Return compact JSON text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
