"""Store a source's file listing in a table on disk while formats claim files: 118M files take no memory.

The table is a private SQLite database in the folder of temporary files. 64 MB of it are in memory, so a small source
never reaches the disk. A file takes some 150 bytes, and 10 microseconds to insert and to read.
"""

import posixpath
import sqlite3
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

CACHE_KB = 64 * 1024
AT_ONCE = 10_000
# Paths are stored as bytes: they sort as texts do, and bytes can hold names that are not UTF-8.
_TABLES = """
CREATE TABLE files (path BLOB PRIMARY KEY, size INTEGER, etag TEXT, suffix TEXT, turn INTEGER) WITHOUT ROWID;
CREATE TABLE kept (uri BLOB, size INTEGER, etag TEXT, kind TEXT, detail TEXT);
"""
FREE = 0
Kept = tuple[str, int, str, str, str | None]


@dataclass(frozen=True, slots=True)
class Entry:
    """One listed file: ``path`` in the source with '/', ``size`` in bytes, ``etag`` that changes with the content."""

    path: str
    size: int
    etag: str

    @property
    def suffix(self) -> str:
        """The extension in lower case without the dot, '' if there is none."""
        return posixpath.splitext(self.path)[1][1:].lower()


class FileTable:
    """The files of a source by path, each free or taken by a format, and a list of rows to sort by URI.

    Formats take files one format after another. The current format sees the files that were free when its turn began.
    """

    def __init__(self, files: Iterable[Entry] = ()) -> None:
        self._db = sqlite3.connect("", isolation_level=None)
        self._db.execute("PRAGMA journal_mode = OFF")
        self._db.execute(f"PRAGMA cache_size = -{CACHE_KB}")
        self._db.executescript(_TABLES)
        self._db.execute("BEGIN")  # never committed: in autocommit mode each statement would write to the disk
        self._turn = FREE
        self.add(files)

    def add(self, files: Iterable[Entry]) -> None:
        """Insert files, all free; replace an entry with the same path."""
        rows = ((_bytes(file.path), file.size, file.etag, file.suffix, FREE) for file in files)
        self._db.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?)", rows)

    def drop(self, folder: str) -> None:
        """Delete the files below ``folder``, a path that ends in '/'."""
        self._db.execute("DELETE FROM files WHERE path >= ? AND path < ?", (_bytes(folder), _bytes(folder[:-1] + "0")))

    def begin_turn(self) -> None:
        """Begin the next format's turn: the format sees the files that are still free."""
        self._turn += 1

    def take(self, *paths: str) -> None:
        """Take files for the current format; skip files that another format has taken."""
        taken = ((self._turn, _bytes(path), FREE) for path in paths)
        self._db.executemany("UPDATE files SET turn = ? WHERE path = ? AND turn = ?", taken)

    def of(self, suffixes: Collection[str]) -> Iterator[Entry]:
        """Yield the files with one of ``suffixes`` that this format may take, by path; it may take some meanwhile."""
        return self._files(f"suffix IN ({_marks(suffixes)})", suffixes)

    def beyond(self, suffixes: Collection[str]) -> Iterator[Entry]:
        """Yield the files with none of ``suffixes`` that this format may take, by path; it may take some meanwhile."""
        return self._files(f"suffix NOT IN ({_marks(suffixes)})", suffixes)

    def has(self, suffixes: Collection[str]) -> bool:
        """Return whether the current format may take a file with one of ``suffixes``."""
        return next(self.of(suffixes), None) is not None

    def get(self, path: str) -> Entry | None:
        """Return the file at ``path``; None if there is none or an earlier format has taken it."""
        sql = "SELECT size, etag FROM files WHERE path = ? AND turn IN (?, ?)"
        found = self._db.execute(sql, (_bytes(path), FREE, self._turn)).fetchone()
        return Entry(path, *found) if found else None

    def is_free(self, path: str) -> bool:
        """Return whether the file at ``path`` is not taken."""
        sql = "SELECT 1 FROM files WHERE path = ? AND turn = ?"
        return self._db.execute(sql, (_bytes(path), FREE)).fetchone() is not None

    def count(self) -> int:
        """Return the number of all files, claimed by a format or not."""
        return self._db.execute("SELECT count(*) FROM files").fetchone()[0]

    def keep(self, rows: Iterable[Kept]) -> None:
        """Store rows (uri, size, etag, kind, detail or None) of the listing; `kept` yields them sorted."""
        kept = ((_bytes(uri), size, etag, kind, detail) for uri, size, etag, kind, detail in rows)
        self._db.executemany("INSERT INTO kept (uri, size, etag, kind, detail) VALUES (?, ?, ?, ?, ?)", kept)

    def kept(self) -> Iterator[Kept]:
        """Yield the rows stored by `keep` by URI; for one URI, rows without a detail first, then in insertion order."""
        rows = self._db.execute("SELECT uri, size, etag, kind, detail FROM kept ORDER BY 1, detail IS NOT NULL, rowid")
        return ((_text(uri), size, etag, kind, detail) for uri, size, etag, kind, detail in rows)

    def _files(self, condition: str, suffixes: Collection[str]) -> Iterator[Entry]:
        """Yield the files that the current format may take and whose suffix meets an SQL ``condition``, by path."""
        # Read in runs, each from the last path on, because files are taken between two reads.
        seen = f"path > ? AND turn IN (?, ?) AND {condition}"
        sql = f"SELECT path, size, etag FROM files WHERE {seen} ORDER BY path LIMIT ?"
        last = b""
        while run := self._db.execute(sql, (last, FREE, self._turn, *suffixes, AT_ONCE)).fetchall():
            yield from (Entry(_text(path), size, etag) for path, size, etag in run)
            last = run[-1][0]


def _marks(values: Collection[Any]) -> str:
    """Return an SQL placeholder for each value."""
    return ", ".join("?" * len(values))


def _bytes(path: str) -> bytes:
    """Encode a path for the table; lone surrogates pass."""
    return path.encode("utf-8", "surrogatepass")


def _text(path: bytes) -> str:
    """Decode a path from the table."""
    return path.decode("utf-8", "surrogatepass")


def runs(files: Iterable[Entry], most: int) -> Iterator[list[Entry]]:
    """Batch files into lists of at most ``most``."""
    left = iter(files)
    while run := list(islice(left, most)):
        yield run
