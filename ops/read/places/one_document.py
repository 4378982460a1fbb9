"""Read the files of one document: each file once, and in total no more than fits into a worker's memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from pairmill.ops.fault import Fault
from pairmill.ops.read.places.file_table import FileTable
from pairmill.ops.read.places.tree import MAX_BYTES, Place, Tree

# The total size of one document's files. A worker holds these, a page's tree (some 400 MB at most) and its own memory.
DOCUMENT_BYTES = 256 * 2**20


class OneDocument(Tree):
    """Cache the files of one document, and bound their total size.

    A file that no longer fits is returned as a Fault ``too_large`` and is not read. The rest is the source's tree.
    """

    def __init__(self, tree: Tree) -> None:
        self.root = tree.root
        self._tree = tree
        self._left = DOCUMENT_BYTES
        self._found: dict[str, bytes | Fault] = {}

    def read(self, path: str, most: int = MAX_BYTES) -> bytes | Fault:
        """Read one file of at most ``most`` bytes, or return a Fault."""
        return self.read_many([path], most)[0]

    def read_many(self, paths: list[str], most: int = MAX_BYTES) -> list[bytes | Fault]:
        """Read files of at most ``most`` bytes each; a Fault for each that fails."""
        wanted = [path for path in dict.fromkeys(paths) if path not in self._found]
        for path, data in zip(wanted, self._tree.read_many(wanted, min(most, self._left)), strict=True):
            self._found[path] = data
            self._left -= 0 if isinstance(data, Fault) else len(data)
        return [self._found[path] for path in paths]

    def list_into(self, files: FileTable) -> Iterator[Fault]:
        """List the source's files as its tree does."""
        return self._tree.list_into(files)

    def uri(self, path: str) -> str:
        """Return the URI of a file."""
        return self._tree.uri(path)

    def exists(self, path: str) -> bool:
        """Return whether the source has a file."""
        return self._tree.exists(path)

    def open(self, path: str) -> IO[bytes]:
        """Open a file as the source's tree does."""
        return self._tree.open(path)

    def where(self, path: str) -> Place | None:
        """Locate a file's bytes as the source's tree does."""
        return self._tree.where(path)
