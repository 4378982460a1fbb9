"""Read EPUB books: zips of XHTML chapters and their images. One book is one unit, each chapter a document."""

from __future__ import annotations

from collections.abc import Iterator

from pairmill.ops.fault import Fault
from pairmill.ops.read.document import Document, Unit
from pairmill.ops.read.formats.html_folder import HtmlFolder
from pairmill.ops.read.places.archive import archive
from pairmill.ops.read.places.file_table import FileTable
from pairmill.ops.read.places.tree import Tree


class Epub:
    """Read the chapters of a book like pages of a folder, in the order of their names."""

    name = "epub"
    turn = 15
    version = 1
    expects = ".epub books"
    suffixes: frozenset[str] = frozenset(("epub",))

    def claim(self, tree: Tree, files: FileTable) -> Iterator[Unit]:
        """Claim every .epub file; `read` returns the fault of a damaged one."""
        for entry in files.of(self.suffixes):
            files.take(entry.path)
            yield Unit(tree.uri(entry.path), entry.size, entry.etag, self.name)

    def read(self, tree: Tree, unit: Unit) -> Iterator[Document | Fault]:
        """Yield the chapters of one book, and a Fault for each that cannot be read."""
        try:
            with archive(tree, unit.uri.removeprefix(tree.uri(""))) as book:
                members = FileTable()
                yield from book.list_into(members)
                chapters = HtmlFolder()
                members.begin_turn()
                for chapter in chapters.claim(book, members):
                    yield from chapters.read(book, chapter)
        except FileNotFoundError:
            yield Fault(unit.uri, "missing", "no such file")


FORMAT = Epub()
