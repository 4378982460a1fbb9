"""Read lists of picture addresses with captions, as LAION is released: Parquet, CSV, TSV or JSON lines.

Nothing is fetched here: a picture on the web is a fault 'missing' that keeps its address and the row's metadata.
"""

from __future__ import annotations

from collections.abc import Iterator

from pairmill.ops.fault import Fault
from pairmill.ops.read.document import Document, Unit
from pairmill.ops.read.places.file_table import FileTable
from pairmill.ops.read.places.tree import Tree
from pairmill.ops.read.records import columns, tables


class UrlList:
    """Read a row as a document; an address column (url, image_url …) is needed, captions (TEXT, alt …) may be there."""

    name = "url_list"
    turn = 70
    version = 1
    suffixes: frozenset[str] = tables.SUFFIXES
    expects = ".parquet, .csv, .tsv or .jsonl with a column 'url' and captions such as 'caption' or 'TEXT'"

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
            # By this row's own fields: those of JSON lines may differ from line to line.
            kinds = {name: "texts" if isinstance(value, list) else "text" for name, value in row.items()}
            address, captions = columns.address(kinds), columns.captions(kinds)
            words = columns.texts(row, captions)
            picture = columns.addressed(tree, path, uri, row, address or "url", words[0] if words else "")
            yield picture if isinstance(picture, Fault) else columns.document(uri, row, [picture], words, captions)


def _fits(kinds: dict[str, str]) -> bool:
    return bool(columns.address(kinds)) and not columns.is_interleaved(kinds)


FORMAT = UrlList()
