"""Read tables in RealSyn's released form, which export also writes: an address, three real texts, a synthetic text.

An export has up to five real texts. Exports hold the pictures too, in a column `image` of {bytes, path}.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pairmill.catalog.terms import text_columns
from pairmill.ops.fault import Fault
from pairmill.ops.read.document import Document, Picture, Unit
from pairmill.ops.read.document_metadata import clean
from pairmill.ops.read.example import Example, parquet_of
from pairmill.ops.read.places.file_table import FileTable
from pairmill.ops.read.places.tree import Tree
from pairmill.ops.read.records import columns, tables

ADDRESS, HELD = "raw_image_url", "image"


class RealSyn:
    """Read each table row as a document of its image and real texts; the synthetic text becomes metadata."""

    name = "realsyn"
    turn = 50
    version = 1
    suffixes: frozenset[str] = tables.SUFFIXES
    expects = ".parquet, .csv or .jsonl with the columns raw_image_url, text1, text2, text3, syn_text"
    examples = (
        Example(
            "RealSyn's release: `raw_image_url, text1, text2, text3, syn_text`",
            "realsyn.parquet",
            lambda: {
                "realsyn.parquet": parquet_of(
                    {
                        ADDRESS: "https://x.example/a.jpg",
                        "text1": "One.",
                        "text2": "Two.",
                        "text3": "Three.",
                        "syn_text": "Made.",
                    }
                )
            },
            links=1,
        ),
    )

    def claim(self, tree: Tree, files: FileTable) -> Iterator[Unit]:
        """Claim tables with the columns of RealSyn."""
        return tables.claimed(tree, files, _fits, self.name)

    def read(self, tree: Tree, unit: Unit) -> Iterator[Document | Fault]:
        """Yield a document for each row of the unit, and a Fault for each that cannot be read."""
        path = tables.path_of(tree, unit)
        for found in tables.rows(tree, unit):
            if isinstance(found, Fault):
                yield found
                continue
            uri, row = found
            words = columns.texts(row, list(text_columns.texts()))
            picture = _held(row) or columns.addressed(tree, path, uri, row, ADDRESS, "")
            used = [HELD, *text_columns.texts()]
            yield picture if isinstance(picture, Fault) else columns.document(uri, row, [picture], words, used)


def _held(row: dict[str, Any]) -> Picture | None:
    """Return the picture whose bytes the row has, None if it has none."""
    held = row.get(HELD)
    data = held.get("bytes") if isinstance(held, dict) else None
    return Picture(0, clean(row.get(ADDRESS)), "", bytes(data)) if data else None


def _fits(kinds: dict[str, str]) -> bool:
    """Return whether a table has RealSyn's address column and a first text."""
    return {ADDRESS, "text1"} <= set(kinds)


FORMAT = RealSyn()
