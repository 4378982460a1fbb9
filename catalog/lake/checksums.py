"""Record the sha256 of every data file of a lake, and verify a table's files before a process first reads them.

DuckDB 1.5.5 verifies nothing in Parquet, not even pages that carry a checksum: of 300 flipped bytes, 250 changed values
silently (measured). So a file is hashed when it is written, and again whenever its stamp (size, inode, times) shows
that a program has written or copied it since. Verifying an unchanged lake costs one stat per file. Bit rot under an
unchanged stamp is not detected here; neither is damage on S3, which verifies its own data.

The transaction that registers a file records its digest, so a kill leaves no file without one. Workers put the digest
into the file name; files that DuckDB writes get a row in ``file_digests`` (`record_written`). The stamps are a cache in
the metadata database, outside DuckLake's snapshots (``pairmill_files``, also with the digests of older lakes).

A lake of up to LISTED_AT_ONCE files is listed whole at the first check, a larger lake table by table: at 2M files in 40
tables that is 50,000 stats (0.2 s) and as many rows of the cache per table. To check only the files that survive a
predicate would save little: keys are hashes, so the minimum and maximum of 100 rows exclude almost no key, and DuckDB
opens each file for 310 CPU µs where its check takes 25 (profiled at 6,000 files).
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from glob import glob
from typing import TYPE_CHECKING, NamedTuple

from pairmill.catalog.lake import snapshot
from pairmill.catalog.lake.location import Location
from pairmill.catalog.lake.metadata import Metadata
from pairmill.catalog.lake.stored_files import SyncedNames, digest_in_name, file_digest, file_stamp, sync
from pairmill.catalog.terms.error import Damaged

if TYPE_CHECKING:
    import pyarrow as pa  # 0.1 CPU s, which readers save

LISTED_AT_ONCE = 5_000
KEPT_IN_MEMORY = 10_000
WRITTEN = "file_digests"
_COLUMNS = ("path", "sha256", "stamp")
_WORDS = re.compile(r"\w+")
# All data files and delete files of all snapshots. An altered table has several rows in ducklake_table, hence DISTINCT.
_FILES = " UNION ".join(
    f"SELECT DISTINCT s.path || t.path || f.path AS path FROM {table} f JOIN ducklake_table t USING (table_id) "
    "JOIN ducklake_schema s USING (schema_id)"
    for table in ("ducklake_data_file", "ducklake_delete_file")
)


class RecordedChecksum(NamedTuple):
    """Recorded checksum of a file: its sha256, and its stamp when the sha256 was last verified."""

    sha256: str
    stamp: str


class Checksums:
    """Recorded digests of one lake's data files: stored when a file is written, verified before it is first read."""

    def __init__(
        self, query: snapshot.Query, insert: "Callable[[str, pa.Table], None]", metadata: Metadata, location: Location
    ) -> None:
        self._query, self._insert, self._metadata = query, insert, metadata  # neither verifies a file
        self._uri, self._data_path = location.uri, location.data_path
        self.applies = not location.on_s3 and metadata.has_checksums()
        self._seen: dict[str, RecordedChecksum] = {}  # written by this process, or verified under a new stamp
        self._unlisted: set[str] = set()
        self._small: bool | None = None
        self._doubtful: dict[str, dict[str, str]] = {}  # by table: files to hash, and the expected digest of each
        self._tables_of: dict[str, set[str]] = {}  # the tables behind each name of a table or view
        self._has_written = False
        self._registered: set[str] | None = None  # files written by DuckDB
        self._names = SyncedNames(self._data_path)

    def begin(self, tables: set[str], views: Mapping[str, str]) -> None:
        """Register the lake's tables, and the tables that each view reads; all of them are unverified."""
        self._has_written = WRITTEN in tables
        if not self.applies:
            return
        self._doubtful.clear()
        self._unlisted = set(tables)
        self._tables_of = {name: {name} for name in tables}
        for name, sql in views.items():
            self._tables_of[name] = {word for word in _WORDS.findall(sql.lower()) if word in tables}

    def check_tables_of(self, sql: str) -> None:
        """Verify the files of every table or view named in ``sql``, once per process. Raise Damaged."""
        if self._unlisted or self._doubtful:
            for table in {name for word in _WORDS.findall(sql.lower()) for name in self._tables_of.get(word, ())}:
                self.check(table)

    def check(self, table: str) -> None:
        """Verify the files of one table, once per process. Raise Damaged if a file is damaged or missing.

        A file without a recorded digest is accepted as it is.
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
        """Return whether every file of the lake has its recorded stamp; hash nothing.

        False if unknown: on S3, or if a file has no record.
        """
        if not self.applies:
            return False
        for table in [""] if self._is_small() else sorted(self._tables_of):  # '' for all tables
            known = self._recorded(table)
            files = snapshot.files(self._query, (table,) if table else ())
            paths = {path for file in files for path in file[1:] if path}
            if not all(path in known and known[path].stamp == self._stamp(path) != "" for path in paths):
                return False
        return True

    def add(self, digests: Mapping[str, str]) -> None:
        """Store the digests that workers computed for the files that they wrote."""
        if self.applies:
            self._seen |= {path: RecordedChecksum(digest, self._stamp(path)) for path, digest in digests.items()}
            if len(self._seen) > KEPT_IN_MEMORY:
                self._keep()

    def sync_names(self, paths: Iterable[str]) -> None:
        """Sync the names of files that a transaction is about to register; their writers have synced the content."""
        if self.applies:
            self._names.sync(paths)

    def record_written(self, tables: Iterable[str]) -> None:
        """Sync files that DuckDB wrote into ``tables``, and record their digests, in the transaction that writes them.

        DuckDB itself syncs no Parquet file: a power cut within 30 s of a publication left pairs of zero bytes.

        DuckDB writes these files into the table's own folder and reveals their names only at the commit, so the folder
        is listed. Files left by a rolled-back transaction also get a row, which is never read.
        """
        if not self.applies or not self._has_written or not (new := self._newly_written(tables)):
            return
        if digests := [(path, digest) for path, digest in self._hashed(new) if digest]:
            import pyarrow as pa

            self._insert(WRITTEN, pa.table({"path": [p for p, _ in digests], "sha256": [d for _, d in digests]}))
            self._newly_written([WRITTEN])

    def _newly_written(self, tables: Iterable[str]) -> list[str]:
        """Sync and return the files that DuckDB wrote into ``tables`` since the last call."""
        found = {path for table in tables for path in glob(f"main/{table}/*.parquet", root_dir=self._data_path)}
        if not found:
            return []
        if self._registered is None:
            # In tables' own folders, where DuckDB writes; a worker's files are in a folder of their run.
            files = {path for file in snapshot.files(self._query) for path in file[1:] if path and path.count("/") == 2}
            self._registered = files | {path for (path,) in self._query(f"SELECT path FROM {WRITTEN}")}
        new = sorted(found - self._registered)
        self._registered.update(new)
        for path in new:
            sync(self._data_path + path)
        self._names.sync(new)
        return new

    def record(self) -> None:
        """Record the stamp of every file in the lake's snapshots, and delete the records of all other files.

        A file whose digest differs from its name or its row gets no record, so that its next reader gets an error.
        """
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

    def _is_small(self) -> bool:
        """Return whether the lake has at most LISTED_AT_ONCE files; the first answer is kept."""
        if self._small is None:
            self._small = snapshot.is_small(self._query, LISTED_AT_ONCE)
        return self._small

    def _list(self, table: str) -> None:
        """Stat the files of ``table``, or of all tables of a small lake, and collect those to hash before a read."""
        whole = len(self._unlisted) > 1 and self._is_small()
        files = snapshot.files(self._query, () if whole else (table,))
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
        """Return whether a file with an expected digest must be hashed: no record, or another digest or stamp."""
        if path not in expected:
            return False
        seen = known.get(path)
        return seen is None or not seen.sha256.startswith(expected[path]) or self._stamp(path) != seen.stamp

    def _expected(self, paths: Sequence[str], known: Mapping[str, RecordedChecksum]) -> dict[str, str]:
        """Return the expected sha256 of each path, or its first 128 bits; paths without a known digest are left out."""
        found = {path: digest for path in paths if (digest := digest_in_name(path))}
        rest = [path for path in paths if path not in found]
        # The first read of this table takes 20 ms; a file that has not changed since it was verified needs none.
        if self._has_written and not all(path in known and known[path].stamp == self._stamp(path) for path in rest):
            written = dict(self._query(f"SELECT path, sha256 FROM {WRITTEN}"))
            found |= {path: written[path] for path in rest if path in written}
        return {path: known[path].sha256 for path in rest if path in known} | found

    def _keep(self) -> None:
        """Write the digests and stamps that this process collected into the metadata database."""
        if rows := [(path, *known) for path, known in self._seen.items() if known.sha256]:
            import pyarrow as pa  # imported here because readers never write

            columns = {name: [row[n] for row in rows] for n, name in enumerate(_COLUMNS)}
            self._metadata.replace("pairmill_files", "path", pa.table(columns))
        self._seen.clear()

    def _recorded(self, table: str) -> dict[str, RecordedChecksum]:
        """Return the recorded checksums of a table's files, or of all files for '', by path."""
        where = f" WHERE path >= 'main/{table}/' AND path < 'main/{table}0'" if table else ""
        rows = self._metadata.read(f"SELECT path, sha256, stamp FROM pairmill_files{where}")
        return {path: RecordedChecksum(sha256, stamp) for path, sha256, stamp in rows} | self._seen

    def _hashed(self, paths: Iterable[str]) -> list[tuple[str, str]]:
        """Hash files in parallel, one thread per CPU; the digest of a missing file is ''."""
        paths = list(paths)
        if not paths:
            return []
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as hashing:
            return list(zip(paths, hashing.map(partial(self._read, file_digest), paths), strict=True))

    def _stamp(self, path: str) -> str:
        """Return the stamp of a file; '' if it is missing."""
        return self._read(file_stamp, path)

    def _read(self, read: Callable[[str], str], path: str) -> str:
        """Return the result of ``read`` (`file_stamp` or `file_digest`) for a file; '' if the file is missing."""
        try:
            return read(self._data_path + path)
        except OSError:
            return ""

    def _damaged(self, path: str) -> Damaged:
        """Return the error for a damaged or missing file."""
        file = self._data_path + path
        what = "is damaged: it holds other bytes than were committed" if os.path.exists(file) else "is gone"
        return Damaged(
            f"lake '{self._uri}': its file {file} {what}. Put it back from a copy of the lake, and run this again."
        )
