"""Open a tar or zip as a tree of files, so that formats for folders can read archives."""

import io
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import IO

from pairmill.ops.fault import Fault, in_words
from pairmill.ops.read.places.file_table import Entry, FileTable
from pairmill.ops.read.places.own_folders import HIDDEN, left_out
from pairmill.ops.read.places.tar_members import Member, members
from pairmill.ops.read.places.tree import MAX_BYTES, Place, Tree, refused
from pairmill.ops.read.places.unpack import head, seekable
from pairmill.ops.read.places.zip_members import DAMAGED, ZipMembers

# Members listed to detect an archive's content: on S3 some megabytes.
PEEKED = 64
PEEKED_BYTES = 8 * 2**20


class ArchiveTree(Tree):
    """Read the plain files of an open archive. Not picklable: it lives as long as one unit is read.

    ``begins`` is the place of the archive's own bytes in the source; None if ``file`` is a decompressed copy.
    """

    def __init__(self, root: str, file: IO[bytes], faults: list[Fault], begins: Place | None) -> None:
        self.root, self._file, self._begins = root, file, begins
        self._zip = ZipMembers(file, root) if is_zip(file) else None
        self._faults = list(faults)
        self._tar: dict[str, Member] = {}
        if self._zip:
            self._faults += self._zip.faults
        else:
            for found in members(file, root):
                if isinstance(found, Fault):
                    self._faults.append(found)
                else:
                    self._tar[found.name] = found

    def list_into(self, files: FileTable) -> Iterator[Fault]:
        """Add the members to ``files``; yield a Fault for each member that is skipped."""
        entries, faults = self.members()
        files.add(entries)
        yield from faults

    def members(self) -> tuple[list[Entry], list[Fault]]:
        """Return (files in the order of the archive, faults); a hidden member becomes a Fault."""
        sizes = self._zip.names() if self._zip else ((each.name, each.size) for each in self._tar.values())
        entries = [Entry(name, size, "") for name, size in sizes]
        hidden = {entry.path: left_out(entry.path) for entry in entries}
        faults = [Fault(self.uri(place), "left_out", HIDDEN) for place in sorted({*hidden.values()} - {""})]
        return [entry for entry in entries if not hidden[entry.path]], self._faults + faults

    def uri(self, path: str) -> str:
        """Return the URI of the member ``path``: the archive's URI, '#', and the path."""
        return f"{self.root}#{path}"

    def exists(self, path: str) -> bool:
        """Return whether the archive has the member ``path``."""
        return path in (self._zip.found if self._zip else self._tar)

    def read(self, path: str, most: int = MAX_BYTES) -> bytes | Fault:
        """Read one member of at most ``most`` bytes, or return a Fault."""
        if not self.exists(path):
            return Fault(self.uri(path), "missing", "no such member in the archive")
        if self._zip:
            return self._zip.read(path, most)
        member = self._tar[path]
        if fault := refused(self.uri(path), member.size, most):
            return fault
        try:
            return member.read(self._file)
        except (tarfile.TarError, OSError, ValueError) as error:
            return Fault(self.uri(path), "bad_record", f"a sparse file that cannot be read: {in_words(error)}")

    def open(self, path: str) -> IO[bytes]:
        """Open a member for reading; a member that cannot be read appears empty."""
        data = self.read(path)
        return io.BytesIO(b"" if isinstance(data, Fault) else data)

    def where(self, path: str) -> Place | None:
        """Return the place of a member's bytes in a tar; None for a zip, which may compress any member."""
        if self._begins is None or path not in self._tar or self._tar[path].is_sparse:
            return None
        return Place(self._begins.uri, self._begins.offset + self._tar[path].offset)


@contextmanager
def archive(tree: Tree, path: str) -> Iterator[ArchiveTree]:
    """Open the archive at ``path``, gzipped or not, as a tree. Raises the errors of ``tree.open``."""
    with seekable(tree, path) as (file, faults, as_it_is):
        yield ArchiveTree(tree.uri(path), file, faults, tree.where(path) if as_it_is else None)


def is_tar_name(path: str) -> bool:
    """Return whether a file name ends like a tar's, gzipped or not."""
    return path.lower().endswith((".tar", ".tgz", ".tar.gz"))


@lru_cache(maxsize=65_536)
def peek(tree: Tree, entry: Entry) -> tuple[str, ...]:
    """Return the names of an archive's first members; () if it is no archive or cannot be read. Cached per listing."""
    try:
        if entry.suffix == "zip":
            with tree.open(entry.path) as file:
                return tuple(name for name, _ in ZipMembers(file, "").names())
        if not is_tar_name(entry.path):
            return ()
        with tree.open(entry.path) as packed:
            file = packed if entry.suffix == "tar" else io.BytesIO(head(packed, PEEKED_BYTES))
            return tuple(found.name for found in members(file, "", PEEKED) if isinstance(found, Member))
    except DAMAGED:
        return ()


def is_zip(file: IO[bytes]) -> bool:
    """Return whether the file begins like a zip; rewind the file to its start."""
    mark = file.read(4)
    file.seek(0)
    return mark in (b"PK\3\4", b"PK\5\6")
