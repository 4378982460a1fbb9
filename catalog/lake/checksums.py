"""Keep the sha256 of every data file of a lake, and check a table's files before a process first reads them.

DuckDB 1.5.5 checks nothing in Parquet, not even pages that carry a checksum: of 300 flipped bytes 250 gave other values
in silence (measured). So a file is hashed when it is written, and again whenever its stamp says that a program has
written or copied it since: to check a lake that stands as it was costs a stat a file. What a disk forgets by itself
under an unchanged stamp is not seen here, nor is data on S3, which checks its own.

The digests stand in the metadata database beside the lease, outside of DuckLake's snapshots, and its seal covers them.
"""

import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from catalog.lake.digest import file_digest, file_stamp
from catalog.lake.location import Location
from catalog.lake.metadata import Metadata
from catalog.terms.error import Damaged

KEPT_IN_MEMORY = 10_000
_COLUMNS = ("path", "sha256", "stamp")
# Every data file and every file that names deleted rows, of all snapshots; a table that was altered stands there twice.
_FILES = " UNION ".join(
    f"SELECT DISTINCT s.path || t.path || f.path AS path FROM {table} f JOIN ducklake_table t USING (table_id) "
    "JOIN ducklake_schema s USING (schema_id)"
    for table in ("ducklake_data_file", "ducklake_delete_file")
)


class Known(NamedTuple):
    """What is on record of a file: its sha256, and its stamp when that was last seen to be true."""

    sha256: str
    stamp: str


class Checksums:
    """The recorded digests of one lake's files. Paths are relative to its data path: ``main/images/….parquet``."""

    def __init__(self, metadata: Metadata, location: Location) -> None:
        self._metadata = metadata
        self._uri, self._data_path = location.uri, location.data_path
        self.applies = not location.on_s3 and metadata.has_checksums()
        self._seen: dict[str, Known] = {}  # written by this process, or found whole under another stamp

    def check(self, table: str, paths: Iterable[str]) -> None:
        """Raise Damaged when a file of ``table`` is gone or is not what was recorded.

        A file without a record, of a writer that was killed, is taken as it is.
        """
        if not self.applies:
            return
        known = self._recorded(table)
        doubtful = [path for path in paths if path in known and self._stamp(path) != known[path].stamp]
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as hashing:
            for path, digest in zip(doubtful, hashing.map(self._digest, doubtful), strict=True):
                if digest != known[path].sha256:
                    raise self._damaged(path)
                self._seen[path] = Known(digest, self._stamp(path))

    def add(self, digests: Mapping[str, str]) -> None:
        """Note the digests that workers computed of the files that they wrote."""
        if self.applies:
            self._seen |= {path: Known(digest, self._stamp(path)) for path, digest in digests.items()}
            if len(self._seen) > KEPT_IN_MEMORY:
                self._keep()

    def record(self) -> None:
        """Put every file that the lake names on record, those that nobody hashed by reading them; forget all others."""
        if not self.applies:
            return
        self._keep()
        unknown = [path for (path,) in self._metadata.read(f"{_FILES} EXCEPT SELECT path FROM pairmill_files")]
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as hashing:
            for path, digest in zip(unknown, hashing.map(self._digest, unknown), strict=True):
                self._seen[path] = Known(digest, self._stamp(path))
        self._keep()
        self._metadata.write(f"DELETE FROM pairmill_files WHERE path NOT IN ({_FILES})")

    def _keep(self) -> None:
        """Write what this process has seen into the metadata database."""
        rows = [(path, *known) for path, known in self._seen.items() if known.sha256]
        if rows:
            import pyarrow as pa  # readers keep nothing

            columns = {name: [row[n] for row in rows] for n, name in enumerate(_COLUMNS)}
            self._metadata.replace("pairmill_files", "path", pa.table(columns))
        self._seen.clear()

    def _recorded(self, table: str) -> dict[str, Known]:
        folder = f"main/{table}/"
        rows = self._metadata.read(
            "SELECT path, sha256, stamp FROM pairmill_files WHERE path >= ? AND path < ?", (folder, folder[:-1] + "0")
        )
        return {path: Known(sha256, stamp) for path, sha256, stamp in rows} | self._seen

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
