"""List and read a source's files by relative path: the base of all trees, a document's view, and a local folder."""

import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from stat import S_ISREG
from typing import IO

from pairmill.catalog.terms.ids import text_id
from pairmill.catalog.terms.mark import LAKE_DATA
from pairmill.ops.fault import Fault
from pairmill.ops.read.places import own_folders
from pairmill.ops.read.places.file_table import Entry, FileTable

# Larger single files are not read: a worker holds a whole image in memory.
MAX_BYTES = 256 * 2**20
# The total size of one document's files. A worker holds these, a page's tree (some 400 MB at most) and its own memory.
DOCUMENT_BYTES = 256 * 2**20


class SourceError(Exception):
    """A source as a whole cannot be used; the message says which one, why, and the remedy."""


@dataclass(frozen=True)
class Place:
    """The location of uncompressed bytes: from byte ``offset`` of the file or object ``uri``.

    A local path has '/./' after the source's folder, as rsync writes it. If that folder is missing, the source is not
    mounted; if only the file is missing, it was deleted.
    """

    uri: str
    offset: int = 0


class Tree(ABC):
    """Base of trees: the operations on a source's files that formats use. Small, picklable. ``root`` is its URI."""

    root: str

    @abstractmethod
    def list_into(self, files: FileTable) -> Iterator[Fault]:
        """Add every file to ``files``; yield a Fault for each file or folder that is skipped.

        Hidden names (which begin with a dot) and folders that Pairmill wrote are skipped, with one Fault for a whole
        folder. Raises SourceError if the place cannot be listed, or Pairmill itself wrote it.
        """

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Return whether there is a file at ``path``."""

    @abstractmethod
    def read(self, path: str, most: int = MAX_BYTES) -> bytes | Fault:
        """Read a whole file of at most ``most`` bytes, or return a Fault.

        The Fault is missing, empty, too_large or unsafe_path (a link that leaves the source). Raises SourceError if the
        storage as a whole does not respond.
        """

    @abstractmethod
    def open(self, path: str) -> IO[bytes]:
        """Open a file for random access. Raises OSError, and SourceError as ``read`` does."""

    def uri(self, path: str) -> str:
        """Return the URI of the file at ``path``."""
        return f"{self.root}/{path}"

    def path_of(self, uri: str) -> str:
        """Return the path of the file at ``uri``; the inverse of `uri`."""
        return uri.removeprefix(self.uri(""))

    def read_many(self, paths: list[str], most: int = MAX_BYTES) -> list[bytes | Fault]:
        """Return contents of files as ``read`` does, ``most`` bytes in total; in parallel if the place is remote."""
        found: list[bytes | Fault] = []
        for path in paths:
            found.append(self.read(path, most))
            most -= 0 if isinstance(found[-1], Fault) else len(found[-1])
        return found

    def where(self, path: str) -> Place | None:
        """Return the place of the file's bytes, valid while the source exists; None if compressed or on the web."""
        return None


class OneDocument(Tree):
    """View of a source's tree for one document: cache its files, and limit their total size.

    A file that no longer fits is returned as a Fault ``too_large`` and not read. Other calls go to the source's tree.
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
        """Return the contents of files of at most ``most`` bytes each; a Fault for each that fails."""
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
        """Return the place of a file's bytes in the source; None if it has none, as a compressed file."""
        return self._tree.where(path)


@dataclass(frozen=True)
class LocalTree(Tree):
    """Tree of a local folder, or of one file in it (``only``). ``root`` is absolute and without symbolic links."""

    root: str
    only: str = ""

    @property
    def place(self) -> str:
        """The path of the tree's folder or single file."""
        return self.uri(self.only) if self.only else self.root

    def list_into(self, files: FileTable) -> Iterator[Fault]:
        """Add the folder's files to ``files``; yield a Fault for each skipped file, linked folder and link out."""
        if self.only:
            files.add([_entry(self.only, os.stat(self.uri(self.only)))])
            return
        folders = [""]
        while folders:
            folder = folders.pop()
            try:
                if self._is_own(folder):
                    yield Fault(self.uri(folder.rstrip("/")), "left_out", own_folders.LEFT_OUT)
                    continue
                with os.scandir(self.uri(folder)) as found:
                    faults: list[Fault] = []
                    files.add(self._listed(folder, found, folders, faults))
                yield from faults
            except OSError as error:
                yield Fault(self.uri(folder), "missing", f"cannot be listed: {error.strerror}")

    def _listed(
        self, folder: str, found: Iterable[os.DirEntry[str]], folders: list[str], faults: list[Fault]
    ) -> Iterator[Entry]:
        """Yield the files of one folder; append its subfolders to ``folders`` and the unlistable to ``faults``."""
        for item in found:
            path = folder + item.name
            if fault := self._unlistable(item, path):
                faults.append(fault)
            elif item.is_dir():
                folders.append(path + "/")
            else:
                yield _entry(path, item.stat())

    def _is_own(self, folder: str) -> bool:
        """Return whether Pairmill wrote a folder. Raises SourceError if the folder is the source itself."""
        with os.scandir(self.uri(folder)) as found:
            clues = {own_folders.clue(item.name) for item in found}
        is_own = own_folders.is_own(clues, lambda: os.path.isdir(self.uri(folder + LAKE_DATA)))
        if is_own and not folder:
            raise SourceError(f"source '{self.root}' {own_folders.ITSELF}")
        return is_own

    def _unlistable(self, item: os.DirEntry[str], path: str) -> Fault | None:
        """Return a Fault if a folder's entry is to be skipped, else None."""
        if not is_storable(path):
            shown = path.encode("utf-8", "replace").decode()
            return Fault(self.uri(shown), "bad_encoding", "the file's name is not UTF-8: rename it")
        if item.name.startswith("."):
            return Fault(self.uri(path), "left_out", own_folders.HIDDEN)
        if item.is_symlink():
            if item.is_dir():
                detail = "a linked folder is not followed: give it as a source of its own"
                return Fault(self.uri(path), "unsafe_path", detail)
            if not os.path.exists(item.path):
                return Fault(self.uri(path), "missing", "a link to nothing")
            if not self._inside(item.path):
                return Fault(self.uri(path), "unsafe_path", "a link that leaves the source is not followed")
        if not item.is_dir() and not item.is_file():
            return Fault(self.uri(path), "bad_record", "neither a file nor a folder")
        return None

    def _inside(self, absolute: str) -> bool:
        """Return whether a path, with links resolved, is inside the source."""
        return os.path.realpath(absolute).startswith(os.path.join(self.root, ""))

    def uri(self, path: str) -> str:
        """Return the absolute path of the file at ``path``."""
        return os.path.join(self.root, path)

    def exists(self, path: str) -> bool:
        """Return whether there is a regular file at ``path``."""
        return os.path.isfile(self.uri(path))

    def read(self, path: str, most: int = MAX_BYTES) -> bytes | Fault:
        """Read one file of at most ``most`` bytes, or return a Fault."""
        absolute = self.uri(path)
        try:
            if not self._inside(absolute):
                return Fault(absolute, "unsafe_path", "a link that leaves the source is not followed")
            with open_regular(absolute) as file:
                size = os.fstat(file.fileno()).st_size
                return refused(absolute, size, most) or file.read(min(size, most))  # `read` allocates what it may read
        except FileNotFoundError:
            return Fault(absolute, "missing", "no such file")
        except (OSError, ValueError) as error:
            return Fault(absolute, "missing", f"cannot be read: {getattr(error, 'strerror', None) or error}")

    def open(self, path: str) -> IO[bytes]:
        """Open the file at ``path``. Raises OSError."""
        return open_regular(self.uri(path))

    def where(self, path: str) -> Place | None:
        """Return the file's path, marked with '/./' after the source's folder."""
        return Place(f"{self.root}/./{path}")


def open_regular(path: str) -> IO[bytes]:
    """Open a regular file for reading. Raises OSError, also for a pipe or a device, which could block for ever."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # without NONBLOCK a pipe waits for a writer
    if not S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file", path)
    return os.fdopen(descriptor, "rb")


def is_storable(path: str) -> bool:
    """Return whether a path can be stored in a table: Python marks bytes that are not UTF-8 with surrogates."""
    try:
        return bool(path.encode())
    except UnicodeEncodeError:
        return False


def _entry(path: str, stat: os.stat_result) -> Entry:
    """Build an Entry; its etag derives from the modification time and the size."""
    return Entry(path, stat.st_size, text_id(str(stat.st_mtime_ns), str(stat.st_size)))


def refused(uri: str, size: int, most: int = MAX_BYTES) -> Fault | None:
    """Return the Fault for a file of ``size`` bytes that is empty or larger than the limit ``most``; else None."""
    if size == 0:
        return Fault(uri, "empty", "no bytes")
    if size > MAX_BYTES:
        return Fault(uri, "too_large", f"{size} bytes; at most {MAX_BYTES} are read")
    if size > most:
        return Fault(uri, "too_large", f"{size} bytes; the other files of its document leave room for {most}")
    return None


def _nearest(path: Path) -> str:
    """Return the remedy for a path that is missing: the nearest name beside it, else the path to check."""
    try:
        names = sorted(os.listdir(path.parent))
    except OSError:
        names = []
    if near := get_close_matches(path.name, names, n=1):
        return f"did you mean '{path.with_name(near[0])}'?"
    return "check the path" if path.is_absolute() else f"check the path ({path.absolute()})"


def local_tree(uri: str) -> LocalTree:
    """Return the tree of a local folder or file (a path or ``file://`` URI). Raises SourceError if there is none."""
    if not uri.removeprefix("file://").strip():
        raise SourceError("source '': an empty name; give a folder or a file, '.' for the folder where this runs")
    try:
        path = Path(uri.removeprefix("file://")).expanduser()
        there = path.exists()
    except (OSError, RuntimeError) as error:  # a name too long for the system, the home of an unknown user
        raise SourceError(f"source '{uri[:200]}': {error}; check the path") from None
    if not there:
        raise SourceError(f"source '{uri}': there is no such file or folder; {_nearest(path)}")
    path = path.resolve()
    return LocalTree(str(path)) if path.is_dir() else LocalTree(str(path.parent), only=path.name)
