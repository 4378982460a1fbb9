"""Read lists of image addresses with captions, as LAION is released: Parquet, CSV, TSV or JSON lines.

Nothing is fetched here: an image on the web becomes a Fault ``missing`` that keeps its address and the row's metadata.
"""

from __future__ import annotations

from collections.abc import Iterator

from pairmill.ops.fault import Fault
from pairmill.ops.read.document import Document, Unit
from pairmill.ops.read.example import ADDRESS, CAPTION, Example
from pairmill.ops.read.places.file_table import FileTable
from pairmill.ops.read.places.tree import Tree
from pairmill.ops.read.records import columns, tables


class UrlList:
    """Read each row as a document; it needs an address (url, image_url …) and may have captions (TEXT, alt …)."""

    name = "url_list"
    turn = 70
    version = 1
    suffixes: frozenset[str] = tables.SUFFIXES
    expects = ".parquet, .csv, .tsv or .jsonl with a column 'url' and captions such as 'caption' or 'TEXT'"
    examples = (
        Example(
            "lists of addresses, LAION's columns and others: `.parquet .csv .tsv .jsonl`",
            "list.csv",
            lambda: {"list.csv": f"URL,TEXT\n{ADDRESS},{CAPTION}\n".encode()},
            links=1,
        ),
    )

    def claim(self, tree: Tree, files: FileTable) -> Iterator[Unit]:
        """Claim tables with a column of image addresses."""
        return tables.claimed(tree, files, _fits, self.name)

    def read(self, tree: Tree, unit: Unit) -> Iterator[Document | Fault]:
        """Yield a document for each row of the unit, and a Fault for each that cannot be read."""
        path = tables.path_of(tree, unit)
        for found in tables.rows(tree, unit):
            if isinstance(found, Fault):
                yield found
                continue
            uri, row = found
            # Detect the columns for each row: the fields of JSON lines may differ from line to line.
            kinds = {name: "texts" if isinstance(value, list) else "text" for name, value in row.items()}
            address, captions = columns.address(kinds), columns.captions(kinds)
            words = columns.texts(row, captions)
            picture = columns.addressed(tree, path, uri, row, address or "url", words[0] if words else "")
            yield picture if isinstance(picture, Fault) else columns.document(uri, row, [picture], words, captions)


def _fits(kinds: dict[str, str]) -> bool:
    """Return whether a table has an address column and not OBELICS' parallel lists."""
    return bool(columns.address(kinds)) and not columns.is_interleaved(kinds)


FORMAT = UrlList()
