"""List and read a source's files by relative path, in a local folder or behind the same protocol elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from pairmill.catalog.terms.ids import text_id
from pairmill.catalog.terms.mark import LAKE_DATA
from pairmill.ops.fault import Fault
from pairmill.ops.read.places import own_folders
from pairmill.ops.read.places.file_table import Entry, FileTable

# Larger single files are refused unread: a worker holds a picture in memory whole.
MAX_BYTES = 256 * 2**20


class SourceError(Exception):
    """A source as a whole cannot be used; the message says which one, why, and the remedy."""


@dataclass(frozen=True)
class Place:
    """Bytes that are in a file unpacked: from byte ``offset`` of the file or object ``uri`` on.

    In a local path '/./' stands behind the source's folder, as rsync writes it: whether that folder is there tells a
    source that is not mounted from a file that was deleted.
    """

    uri: str
    offset: int = 0


class Tree(Protocol):
    """What a format may do with a source's files. Small and picklable: workers get one each."""

    @property
    def root(self) -> str: ...

    def list_into(self, files: FileTable) -> Iterator[Fault]:
        """Put every file into ``files``, and yield a Fault for what could not be listed.

        What is hidden (its name begins with a dot) and folders that Pairmill made are left out, each with a Fault: of a
        hidden folder one for all. Raises SourceError when the place cannot be listed, or is itself made by Pairmill.
        """
        ...

    def uri(self, path: str) -> str: ...

    def exists(self, path: str) -> bool: ...

    def read(self, path: str, most: int = MAX_BYTES) -> bytes | Fault:
        """Read a whole file; or the Fault missing, empty, too_large or unsafe_path (a link that leaves the source).

        A file of over ``most`` bytes is too large.

        Raises SourceError when the place as a whole stops answering.
        """
        ...

    def read_many(self, paths: list[str], most: int = MAX_BYTES) -> list[bytes | Fault]:
        """Read each as ``read`` does, ``most`` bytes in all; many at a time where the place is far away."""
        ...

    def open(self, path: str) -> IO[bytes]:
        """Open a file to be read at any place. Raises OSError, and SourceError as ``read`` does."""
        ...

    def where(self, path: str) -> Place | None:
        """Locate the file's bytes for as long as the source lasts.

        None where they are packed, or where the place does not last (an address on the web).
        """
        ...


@dataclass(frozen=True)
class LocalTree:
    """Read a folder of this machine, or one file of it (``only``). ``root`` is absolute and free of links."""

    root: str
    only: str = ""

    @property
    def place(self) -> str:
        """The folder or file."""
        return self._absolute(self.only) if self.only else self.root

    def list_into(self, files: FileTable) -> Iterator[Fault]:
        if self.only:
            files.add([_entry(self.only, os.stat(self._absolute(self.only)))])
            return
        folders = [""]
        while folders:
            folder = folders.pop()
            try:
                if self._is_own(folder):
                    yield Fault(self.uri(folder.rstrip("/")), "left_out", own_folders.LEFT_OUT)
                    continue
                with os.scandir(self._absolute(folder)) as found:
                    faults: list[Fault] = []
                    files.add(self._listed(folder, found, folders, faults))
                yield from faults
            except OSError as error:
                yield Fault(self.uri(folder), "missing", f"cannot be listed: {error.strerror}")

    def _listed(
        self, folder: str, found: Iterable[os.DirEntry[str]], folders: list[str], faults: list[Fault]
    ) -> Iterator[Entry]:
        """Yield the files of one folder; add the folders in it to ``folders``, what cannot be listed to ``faults``."""
        for item in found:
            path = folder + item.name
            if fault := self._unlistable(item, path):
                faults.append(fault)
            elif item.is_dir():
                folders.append(path + "/")
            else:
                yield _entry(path, item.stat())

    def _is_own(self, folder: str) -> bool:
        """Whether Pairmill made a folder, by a first look at its names. Raises SourceError when it is the source."""
        with os.scandir(self._absolute(folder)) as found:
            clues = {own_folders.clue(item.name) for item in found}
        is_own = self._is_own_by(folder, clues)
        if is_own and not folder:
            raise SourceError(f"source '{self.root}' {own_folders.ITSELF}")
        return is_own

    def _is_own_by(self, folder: str, clues: set[str]) -> bool:
        def head(name: str, n: int) -> bytes:
            try:
                with self.open(folder + name) as file:
                    return file.read(n)
            except OSError:
                return b""

        return own_folders.is_own(clues, lambda: os.path.isdir(self._absolute(folder + LAKE_DATA)), head)

    def _unlistable(self, item: os.DirEntry[str], path: str) -> Fault | None:
        if not is_storable(path):
            shown = path.encode("utf-8", "replace").decode()
            return Fault(self.uri(shown), "bad_encoding", "the file's name is not UTF-8: rename it")
        if item.name.startswith("."):
            return Fault(self.uri(path), "left_out", own_folders.HIDDEN)
        if item.is_symlink() and item.is_dir():
            return Fault(
                self.uri(path), "unsafe_path", "a linked folder is not followed: give it as a source of its own"
            )
        if item.is_symlink() and not os.path.exists(item.path):
            return Fault(self.uri(path), "missing", "a link to nothing")
        if not self._inside(item.path, item.is_symlink()):
            return Fault(self.uri(path), "unsafe_path", "a link that leaves the source is not followed")
        if not item.is_dir() and not item.is_file():
            return Fault(self.uri(path), "bad_record", "neither a file nor a folder")
        return None

    def _inside(self, absolute: str, is_link: bool) -> bool:
        return not is_link or os.path.realpath(absolute).startswith(os.path.join(self.root, ""))

    def _absolute(self, path: str) -> str:
        return os.path.join(self.root, path)

    def uri(self, path: str) -> str:
        return self._absolute(path)

    def exists(self, path: str) -> bool:
        return os.path.isfile(self._absolute(path))

    def read(self, path: str, most: int = MAX_BYTES) -> bytes | Fault:
        absolute = self._absolute(path)
        try:
            if not self._inside(absolute, True):
                return Fault(absolute, "unsafe_path", "a link that leaves the source is not followed")
            with open(absolute, "rb") as file:
                return refused(absolute, os.fstat(file.fileno()).st_size, most) or file.read(most)
        except FileNotFoundError:
            return Fault(absolute, "missing", "no such file")
        except (OSError, ValueError) as error:
            return Fault(absolute, "missing", f"cannot be read: {getattr(error, 'strerror', None) or error}")

    def read_many(self, paths: list[str], most: int = MAX_BYTES) -> list[bytes | Fault]:
        return one_by_one(self.read, paths, most)

    def open(self, path: str) -> IO[bytes]:
        return open(self._absolute(path), "rb")

    def where(self, path: str) -> Place | None:
        return Place(f"{self.root}/./{path}")


def is_storable(path: str) -> bool:
    """Whether a path can be written into a table: Python marks bytes that are not UTF-8 by surrogates."""
    try:
        return bool(path.encode())
    except UnicodeEncodeError:
        return False


def _entry(path: str, stat: os.stat_result) -> Entry:
    return Entry(path, stat.st_size, text_id(str(stat.st_mtime_ns), str(stat.st_size)))


def refused(uri: str, size: int, most: int = MAX_BYTES) -> Fault | None:
    """Say why a file of this many bytes is not read where ``most`` fit; None when it is."""
    if size == 0:
        return Fault(uri, "empty", "no bytes")
    if size > MAX_BYTES:
        return Fault(uri, "too_large", f"{size} bytes; at most {MAX_BYTES} are read")
    if size > most:
        return Fault(uri, "too_large", f"{size} bytes; the other files of its document leave room for {most}")
    return None


def one_by_one(read: Callable[[str, int], bytes | Fault], paths: list[str], most: int) -> list[bytes | Fault]:
    """Read paths in turn, ``most`` bytes in all."""
    found: list[bytes | Fault] = []
    for path in paths:
        found.append(read(path, most))
        most -= 0 if isinstance(found[-1], Fault) else len(found[-1])
    return found


def local_tree(uri: str) -> LocalTree:
    """Make the tree of a local folder or file (a path or ``file://`` URI). Raises SourceError when there is none."""
    if not uri.removeprefix("file://").strip():
        raise SourceError("source '': an empty name; give a folder or a file, '.' for the folder where this runs")
    try:
        path = Path(uri.removeprefix("file://")).expanduser()
        there = path.exists()
    except (OSError, RuntimeError) as error:  # a name too long for the system, a home that nobody has
        raise SourceError(f"source '{uri[:200]}': {error}; check the path") from None
    if not there:
        raise SourceError(f"source '{uri}': there is no such file or folder; check the path ({path.absolute()})")
    path = path.resolve()
    return LocalTree(str(path)) if path.is_dir() else LocalTree(str(path.parent), only=path.name)
