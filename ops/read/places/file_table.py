"""Hold a source's files in a table on disk while its formats share them out: 118M files take no memory.

A private SQLite database in the folder of temporary files, of which 64 MB are in memory: a small source never reaches
the disk. A file takes some 150 bytes of it, and 10 microseconds to put there and to hand out again.
"""

from __future__ import annotations

import posixpath
import sqlite3
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

CACHE_KB = 64 * 1024
AT_ONCE = 10_000
# Paths as bytes: they sort as texts do, and names that are no UTF-8 have them too.
_TABLES = """
CREATE TABLE files (path BLOB PRIMARY KEY, size INTEGER, etag TEXT, suffix TEXT, turn INTEGER) WITHOUT ROWID;
CREATE TABLE kept (uri BLOB, size INTEGER, etag TEXT, kind TEXT, detail TEXT);
"""
FREE = 0
Kept = tuple[str, int, str, str, str | None]


@dataclass(frozen=True, slots=True)
class Entry:
    """One listed file: ``path`` in the source with '/', ``size`` in bytes; ``etag`` changes with its content."""

    path: str
    size: int
    etag: str

    @property
    def suffix(self) -> str:
        """Extension in lower case without the dot, '' for none."""
        return posixpath.splitext(self.path)[1][1:].lower()


class FileTable:
    """Files by path, each free or taken by the format of a turn; and rows that are kept to be sorted by uri.

    What a format sees during its turn are the files that were free when that began.
    """

    def __init__(self, files: Iterable[Entry] = ()) -> None:
        self._db = sqlite3.connect("", isolation_level=None)
        self._db.execute("PRAGMA journal_mode = OFF")
        self._db.execute(f"PRAGMA cache_size = -{CACHE_KB}")
        self._db.executescript(_TABLES)
        self._db.execute("BEGIN")  # for good: by itself each statement would write what it changed to the disk
        self._turn = FREE
        self.add(files)

    def add(self, files: Iterable[Entry]) -> None:
        """Put files into the table, free."""
        rows = ((_bytes(file.path), file.size, file.etag, file.suffix, FREE) for file in files)
        self._db.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?)", rows)

    def drop(self, folder: str) -> None:
        """Forget the files of a folder, which ends in '/'."""
        self._db.execute("DELETE FROM files WHERE path >= ? AND path < ?", (_bytes(folder), _bytes(folder[:-1] + "0")))

    def begin_turn(self) -> None:
        """Let the next format see what is still free."""
        self._turn += 1

    def take(self, *paths: str) -> None:
        """Take files for the format whose turn it is; not those that another has."""
        taken = ((self._turn, _bytes(path), FREE) for path in paths)
        self._db.executemany("UPDATE files SET turn = ? WHERE path = ? AND turn = ?", taken)

    def of(self, suffixes: Collection[str]) -> Iterator[Entry]:
        """Yield the files of this turn with one of these suffixes, by path. Others may be taken meanwhile."""
        return self._files(f"suffix IN ({_marks(suffixes)})", suffixes)

    def beyond(self, suffixes: Collection[str]) -> Iterator[Entry]:
        """Yield the files of this turn with none of these suffixes, by path."""
        return self._files(f"suffix NOT IN ({_marks(suffixes)})", suffixes)

    def has(self, suffixes: Collection[str]) -> bool:
        """Whether a file of this turn has one of these suffixes."""
        return next(self.of(suffixes), None) is not None

    def get(self, path: str) -> Entry | None:
        """Return the file at ``path``, None when there is none in this turn."""
        sql = "SELECT size, etag FROM files WHERE path = ? AND turn IN (?, ?)"
        found = self._db.execute(sql, (_bytes(path), FREE, self._turn)).fetchone()
        return Entry(path, *found) if found else None

    def __contains__(self, path: object) -> bool:
        return isinstance(path, str) and self.get(path) is not None

    def is_free(self, path: str) -> bool:
        """Whether nobody has taken the file at ``path``."""
        return bool(
            self._db.execute("SELECT 1 FROM files WHERE path = ? AND turn = ?", (_bytes(path), FREE)).fetchone()
        )

    def count(self) -> int:
        """Count the files, free or taken."""
        return self._db.execute("SELECT count(*) FROM files").fetchone()[0]

    def keep(self, rows: Iterable[Kept]) -> None:
        """Keep (uri, size, etag, kind, detail or None) rows until they are asked for."""
        kept = ((_bytes(uri), size, etag, kind, detail) for uri, size, etag, kind, detail in rows)
        self._db.executemany("INSERT INTO kept (uri, size, etag, kind, detail) VALUES (?, ?, ?, ?, ?)", kept)

    def kept(self) -> Iterator[Kept]:
        """Yield the kept rows by uri; of one uri those without a detail first, in the order in which they came."""
        rows = self._db.execute(
            "SELECT uri, size, etag, kind, detail FROM kept ORDER BY uri, detail IS NOT NULL, rowid"
        )
        return ((_text(uri), size, etag, kind, detail) for uri, size, etag, kind, detail in rows)

    def _files(self, condition: str, suffixes: Collection[str]) -> Iterator[Entry]:
        # By runs from the last path on, since files are taken between two of them.
        seen = f"path > ? AND turn IN (?, ?) AND {condition}"
        sql = f"SELECT path, size, etag FROM files WHERE {seen} ORDER BY path LIMIT ?"
        last = b""
        while run := self._db.execute(sql, (last, FREE, self._turn, *suffixes, AT_ONCE)).fetchall():
            yield from (Entry(_text(path), size, etag) for path, size, etag in run)
            last = run[-1][0]


def _marks(values: Collection[Any]) -> str:
    return ", ".join("?" * len(values))


def _bytes(path: str) -> bytes:
    return path.encode("utf-8", "surrogatepass")


def _text(path: bytes) -> str:
    return path.decode("utf-8", "surrogatepass")


def runs(files: Iterable[Entry], most: int) -> Iterator[list[Entry]]:
    """Cut files into runs of at most ``most``."""
    left = iter(files)
    while run := list(islice(left, most)):
        yield run
