"""Read a source's files for one document: each once, and all together no more than a worker can hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from pairmill.ops.fault import Fault
from pairmill.ops.read.places.file_table import FileTable
from pairmill.ops.read.places.tree import MAX_BYTES, Place, Tree

# Of one document's files. A worker holds them all, a page's tree (some 400 MB at most) and what it has itself.
DOCUMENT_BYTES = 256 * 2**20


class OneDocument:
    """A tree for the time of one document. A file that no longer fits is a Fault too_large, unread."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._left = DOCUMENT_BYTES
        self._found: dict[str, bytes | Fault] = {}

    @property
    def root(self) -> str:
        return self._tree.root

    def list_into(self, files: FileTable) -> Iterator[Fault]:
        return self._tree.list_into(files)

    def uri(self, path: str) -> str:
        return self._tree.uri(path)

    def exists(self, path: str) -> bool:
        return self._tree.exists(path)

    def read(self, path: str, most: int = MAX_BYTES) -> bytes | Fault:
        return self.read_many([path], most)[0]

    def read_many(self, paths: list[str], most: int = MAX_BYTES) -> list[bytes | Fault]:
        wanted = [path for path in dict.fromkeys(paths) if path not in self._found]
        for path, data in zip(wanted, self._tree.read_many(wanted, min(most, self._left)), strict=True):
            self._found[path] = data
            self._left -= 0 if isinstance(data, Fault) else len(data)
        return [self._found[path] for path in paths]

    def open(self, path: str) -> IO[bytes]:
        return self._tree.open(path)

    def where(self, path: str) -> Place | None:
        return self._tree.where(path)
