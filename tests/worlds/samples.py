"""Small real sources to read: images, pages and tables."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from pairmill.ops.fault import Fault
from pairmill.ops.read.source import Document, Picture, Source, Text, Unit


def jpeg(colour: str = "red", size: tuple[int, int] = (8, 6)) -> bytes:
    """Return a JPEG of one colour."""
    out = io.BytesIO()
    Image.new("RGB", size, colour).save(out, "JPEG")
    return out.getvalue()


def write(folder: Path, files: dict[str, str | bytes]) -> Path:
    """Write files into a folder; return the folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def table_bytes(columns: dict[str, pa.Array], row_group_size: int = 100) -> bytes:
    """Return a Parquet file of these columns."""
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out, row_group_size=row_group_size)
    return out.getvalue()


def everything(source: Source, units: Sequence[Unit] = ()) -> Iterator[Document | Fault]:
    """Yield the documents and faults of all units, or of ``units`` that were listed before."""
    for unit in units or source.units():
        yield from source.read(unit)


def documents(source: Source, units: Sequence[Unit] = ()) -> list[Document]:
    """List the documents of all units, or of ``units``."""
    return [found for found in everything(source, units) if isinstance(found, Document)]


def faults(source: Source) -> list[Fault]:
    """List the faults of all units."""
    return [found for found in everything(source) if isinstance(found, Fault)]


def pictures(document: Document) -> list[Picture]:
    """List the images of a document."""
    return [item for item in document.items if isinstance(item, Picture)]


def outline(document: Document) -> list[str]:
    """List the items in order: texts as they are, images as <name>, or as <reason> of their fault."""
    return [
        item.text if isinstance(item, Text) else f"<{item.fault.reason if item.fault else item.url.rpartition('/')[2]}>"
        for item in document.items
    ]
