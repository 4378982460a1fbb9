"""Read RealSyn's released form, which export writes too: an address, three real texts and a synthetic one."""

from __future__ import annotations

from collections.abc import Iterator

from pairmill.ops.fault import Fault
from pairmill.ops.read.document import Document, Unit
from pairmill.ops.read.places.file_table import FileTable
from pairmill.ops.read.places.tree import Tree
from pairmill.ops.read.records import columns, tables

ADDRESS, TEXTS = "raw_image_url", ("text1", "text2", "text3")


class RealSyn:
    """Read a row as a document of its picture and real texts; the synthetic text, no document's own, is metadata."""

    name = "realsyn"
    turn = 50
    version = 1
    suffixes: frozenset[str] = tables.SUFFIXES
    expects = ".parquet, .csv or .jsonl with the columns raw_image_url, text1, text2, text3, syn_text"

    def claim(self, tree: Tree, files: FileTable) -> Iterator[Unit]:
        for entry in tables.shaped(tree, files, _fits):
            files.take(entry.path)
            yield from tables.units(tree, entry, self.name)

    def read(self, tree: Tree, unit: Unit) -> Iterator[Document | Fault]:
        path = tables.path_of(tree, unit)
        for found in tables.rows(tree, unit):
            if isinstance(found, Fault):
                yield found
                continue
            uri, row = found
            words = columns.texts(row, list(TEXTS))
            picture = columns.addressed(tree, path, uri, row, ADDRESS, "")
            yield picture if isinstance(picture, Fault) else columns.document(uri, row, [picture], words, list(TEXTS))


def _fits(kinds: dict[str, str]) -> bool:
    return {ADDRESS, "text1"} <= set(kinds)


FORMAT = RealSyn()
