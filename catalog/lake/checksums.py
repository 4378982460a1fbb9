"""Know the sha256 of every data file of a lake, and check a table's files before a process first reads them.

DuckDB 1.5.5 checks nothing in Parquet, not even pages that carry a checksum: of 300 flipped bytes 250 gave other values
in silence (measured). So a file is hashed when it is written, and again whenever its stamp says that a program has
written or copied it since: to check a lake that stands as it was costs a stat a file. What a disk forgets by itself
under an unchanged stamp is not seen here, nor is data on S3, which checks its own.

The transaction that registers a file records its digest, so that a kill leaves no file without one: workers put it into
the file's name, files that DuckDB writes get a row of ``file_digests`` (`record_written`). The stamps are a cache in
the metadata database, outside of DuckLake's snapshots (``pairmill_files``, which has the digests of older lakes too).

A lake of up to LISTED_AT_ONCE files is listed whole at the first check, a larger one table by table: at 2M files in 40
tables that is 50,000 stats (0.2 s) and as many rows of the cache a table.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from glob import glob
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pairmill.catalog.lake import snapshot
from pairmill.catalog.lake.digest import digest_in_name, file_digest, file_stamp
from pairmill.catalog.lake.location import Location
from pairmill.catalog.lake.metadata import Metadata
from pairmill.catalog.terms.error import Damaged

if TYPE_CHECKING:
    import pyarrow as pa  # 0.1 CPU s, which readers do without

LISTED_AT_ONCE = 5_000
KEPT_IN_MEMORY = 10_000
WRITTEN = "file_digests"
_COLUMNS = ("path", "sha256", "stamp")
_WORDS = re.compile(r"\w+")
# Every data file and every file that names deleted rows, of all snapshots; a table that was altered stands there twice.
_FILES = " UNION ".join(
    f"SELECT DISTINCT s.path || t.path || f.path AS path FROM {table} f JOIN ducklake_table t USING (table_id) "
    "JOIN ducklake_schema s USING (schema_id)"
    for table in ("ducklake_data_file", "ducklake_delete_file")
)


class RecordedChecksum(NamedTuple):
    """What is on record of a file: its sha256, and its stamp when that was last seen to be true."""

    sha256: str
    stamp: str


class Catalog(Protocol):
    """What the checks need of an open lake."""

    def unchecked(self, sql: str) -> list[tuple]:
        """Run a statement whose tables are not checked."""
        ...

    def insert(self, table: str, rows: "pa.Table") -> None:
        """Append rows to a table, without a check."""
        ...


class Checksums:
    """The digests of one lake's files. Paths are relative to its data path: ``main/images/….parquet``."""

    def __init__(self, lake: Catalog, metadata: Metadata, location: Location) -> None:
        self._lake, self._metadata = lake, metadata
        self._uri, self._data_path = location.uri, location.data_path
        self.applies = not location.on_s3 and metadata.has_checksums()
        self._seen: dict[str, RecordedChecksum] = {}  # written by this process, or found whole under another stamp
        self._unlisted: set[str] = set()
        self._doubtful: dict[str, dict[str, str]] = {}  # by table: files to be hashed, and the digest expected of each
        self._tables_of: dict[str, set[str]] = {}  # the tables that a table's or view's name stands for
        self._has_written = False
        self._registered: set[str] | None = None  # files that DuckDB wrote

    def begin(self, tables: set[str], views: Mapping[str, str]) -> None:
        """Know the lake's tables, and which of them each view reads: all are to be checked."""
        self._has_written = WRITTEN in tables
        if not self.applies:
            return
        self._unlisted = set(tables)
        self._tables_of = {name: {name} for name in tables}
        for name, sql in views.items():
            self._tables_of[name] = {word for word in _WORDS.findall(sql.lower()) if word in tables}

    def check_tables_of(self, sql: str) -> None:
        """Check the files of every table whose name stands in ``sql``, once a process. Raises Damaged when one is
        damaged or gone."""
        if self._unlisted or self._doubtful:
            for table in {name for word in _WORDS.findall(sql.lower()) for name in self._tables_of.get(word, ())}:
                self.check(table)

    def check(self, table: str) -> None:
        """Check the files of one table, once a process. Raises Damaged.

        A file of an older lake that has no record, of a writer that was killed, is taken as it is.
        """
        if table in self._unlisted:
            self._list(table)
        if expected := self._doubtful.get(table):
            for path, digest in self._hashed(expected):
                if not digest.startswith(expected[path]) or not digest:
                    raise self._damaged(path)
                self._seen[path] = RecordedChecksum(digest, self._stamp(path))
            del self._doubtful[table]

    def are_unchanged(self) -> bool:
        """Whether every file of the lake is there under the stamp on record, all of them at once; nothing is hashed.

        False where that cannot be said: on S3, and of files that have no record.
        """
        if not self.applies:
            return False
        whole = snapshot.most_files(self._lake.unchecked) <= LISTED_AT_ONCE
        return all(self._stands(table) for table in ([""] if whole else sorted(self._tables_of)))

    def _stands(self, table: str) -> bool:
        """Whether the files of one table, or of all for '', have the stamps on record."""
        known = self._recorded(table)
        files = snapshot.files(self._lake.unchecked, (table,) if table else ())
        paths = {path for file in files for path in file[1:] if path}
        return all(path in known and known[path].stamp == self._stamp(path) != "" for path in paths)

    def add(self, digests: Mapping[str, str]) -> None:
        """Note the digests that workers computed of the files that they wrote."""
        if self.applies:
            self._seen |= {path: RecordedChecksum(digest, self._stamp(path)) for path, digest in digests.items()}
            if len(self._seen) > KEPT_IN_MEMORY:
                self._keep()

    def record_written(self, tables: Iterable[str]) -> None:
        """Record the digests of files that DuckDB wrote into ``tables``: part of the transaction that writes them.

        It writes them into the table's own folder, and says their names to nobody before the commit; what a rolled back
        transaction left there gets a row that nobody reads.
        """
        if not self.applies or not self._has_written:
            return
        found = {path for table in tables for path in glob(f"main/{table}/*.parquet", root_dir=self._data_path)}
        if not found:
            return
        if self._registered is None:
            self._registered = self._on_record()
        new = sorted(found - self._registered)
        self._registered.update(new)
        digests = [(path, digest) for path, digest in self._hashed(new) if digest]
        if digests:
            import pyarrow as pa

            self._lake.insert(WRITTEN, pa.table({"path": [p for p, _ in digests], "sha256": [d for _, d in digests]}))

    def record(self) -> None:
        """Put the stamp of every file that the lake names on record; forget all others. A file that is not what its
        name or its row says gets none, so that whoever reads it is told."""
        if not self.applies:
            return
        self._keep()
        unknown = [path for (path,) in self._metadata.read(f"{_FILES} EXCEPT SELECT path FROM pairmill_files")]
        expected = self._expected(unknown, {}) if unknown else {}
        for path, digest in self._hashed(unknown):
            if digest.startswith(expected.get(path, "")):
                self._seen[path] = RecordedChecksum(digest, self._stamp(path))
        self._keep()
        self._metadata.write(f"DELETE FROM pairmill_files WHERE path NOT IN ({_FILES})")

    def _list(self, table: str) -> None:
        """Stat the files of ``table``, or of all in a small lake; keep those that must be hashed before they are
        read."""
        whole = len(self._unlisted) > 1 and snapshot.most_files(self._lake.unchecked) <= LISTED_AT_ONCE
        files = snapshot.files(self._lake.unchecked, () if whole else (table,))
        by_table: dict[str, set[str]] = {}
        for name, *paths in files:
            by_table.setdefault(name, set()).update(path for path in paths if path)
        known = self._recorded("" if whole else table)
        expected = self._expected([path for paths in by_table.values() for path in paths], known)
        for name in self._unlisted & by_table.keys():
            doubtful = {
                path: expected[path] for path in sorted(by_table[name]) if self._is_doubtful(path, expected, known)
            }
            if doubtful:
                self._doubtful[name] = doubtful
        self._unlisted -= set(self._unlisted) if whole else {table}

    def _is_doubtful(self, path: str, expected: Mapping[str, str], known: Mapping[str, RecordedChecksum]) -> bool:
        if path not in expected:
            return False
        seen = known.get(path)
        return seen is None or not seen.sha256.startswith(expected[path]) or self._stamp(path) != seen.stamp

    def _expected(self, paths: Sequence[str], known: Mapping[str, RecordedChecksum]) -> dict[str, str]:
        """Return the sha256, or its first 128 bits, that each file must have; a path without one is left out."""
        found = {path: digest for path in paths if (digest := digest_in_name(path))}
        rest = [path for path in paths if path not in found]
        if rest and self._has_written:
            written = dict(self._lake.unchecked(f"SELECT path, sha256 FROM {WRITTEN}"))
            found |= {path: written[path] for path in rest if path in written}
        return {path: known[path].sha256 for path in rest if path in known} | found

    def _on_record(self) -> set[str]:
        """Return the files in tables' own folders, where DuckDB writes, that are registered or have a digest."""
        held = [
            path for file in snapshot.files(self._lake.unchecked) for path in file[1:] if path and path.count("/") == 2
        ]
        return {*held, *(path for (path,) in self._lake.unchecked(f"SELECT path FROM {WRITTEN}"))}

    def _keep(self) -> None:
        """Write what this process has seen into the metadata database."""
        rows = [(path, *known) for path, known in self._seen.items() if known.sha256]
        if rows:
            import pyarrow as pa  # readers keep nothing

            columns = {name: [row[n] for row in rows] for n, name in enumerate(_COLUMNS)}
            self._metadata.replace("pairmill_files", "path", pa.table(columns))
        self._seen.clear()

    def _recorded(self, table: str) -> dict[str, RecordedChecksum]:
        where = f" WHERE path >= 'main/{table}/' AND path < 'main/{table}0'" if table else ""
        rows = self._metadata.read(f"SELECT path, sha256, stamp FROM pairmill_files{where}")
        return {path: RecordedChecksum(sha256, stamp) for path, sha256, stamp in rows} | self._seen

    def _hashed(self, paths: Iterable[str]) -> list[tuple[str, str]]:
        paths = list(paths)
        if not paths:
            return []
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as hashing:
            return list(zip(paths, hashing.map(self._digest, paths), strict=True))

    def _stamp(self, path: str) -> str:
        try:
            return file_stamp(self._data_path + path)
        except OSError:
            return ""

    def _digest(self, path: str) -> str:
        try:
            return file_digest(self._data_path + path)
        except OSError:
            return ""

    def _damaged(self, path: str) -> Damaged:
        file = self._data_path + path
        what = "is damaged: it holds other bytes than were committed" if os.path.exists(file) else "is gone"
        return Damaged(
            f"lake '{self._uri}': its file {file} {what}. Put it back from a copy of the lake, and run this again."
        )
