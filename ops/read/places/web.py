"""Read a list or an archive at a web address, by ranges if the server supports them, else as a whole.

The usual proxy variables apply. The query of an address may be a signature: it is sent with requests, but is in no URI.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO
from urllib.parse import urlsplit

from pairmill.catalog.terms.ids import text_id
from pairmill.catalog.terms.secrets import without_secrets
from pairmill.ops.fault import Fault
from pairmill.ops.read.places.file_table import Entry, FileTable
from pairmill.ops.read.places.tree import MAX_BYTES, Place, SourceError, one_by_one, refused
from pairmill.ops.read.places.web_bytes import brought, range_of, state_of

READABLE = (".parquet", ".parq", ".csv", ".tsv", ".jsonl", ".ndjson", ".warc", ".tar", ".tgz", ".zip")


@dataclass(frozen=True)
class WebTree:
    """Read the one file ``name`` of ``root`` ('https://host/folder'); ``query`` is sent with each request."""

    root: str
    name: str
    query: str = field(default="", repr=False)

    @property
    def place(self) -> str:
        """The address without its query, which may be a secret that no row may hold."""
        return self.uri(self.name)

    def list_into(self, files: FileTable) -> Iterator[Fault]:
        """List the file as Tree.list_into does. Raises SourceError if the address cannot be read.

        The whole file is hashed if the server states no size or no etag.
        """
        state = state_of(self._address)
        size, etag = state.size, state.etag
        if size < 0 or not etag:
            with self.open(self.name) as file:
                digest = hashlib.file_digest(file, "sha256")  # pyright: ignore[reportArgumentType]
                size, etag = file.tell(), digest.hexdigest()
        files.add([Entry(self.name, size, text_id(etag, str(size)))])
        return iter(())

    def uri(self, path: str) -> str:
        """Return the address of ``path`` without the query."""
        return f"{self.root}/{path}"

    def exists(self, path: str) -> bool:
        """Return whether ``path`` is the name of this tree's one file."""
        return path == self.name

    def read(self, path: str, most: int = MAX_BYTES) -> bytes | Fault:
        """Read the file if it has at most ``most`` bytes, or return a Fault. Raises SourceError if a request fails."""
        if not self.exists(path):
            return Fault(self.uri(path), "missing", "at a web address only the list itself is read")
        state = state_of(self._address)
        fault = refused(self.uri(path), state.size, most) if state.size >= 0 else None
        if fault:
            return fault
        with self.open(path) as file:
            data = file.read(most + 1)
        return refused(self.uri(path), len(data), most) or data

    def read_many(self, paths: list[str], most: int = MAX_BYTES) -> list[bytes | Fault]:
        """Read files in turn, ``most`` bytes in total."""
        return one_by_one(self.read, paths, most)

    def open(self, path: str) -> IO[bytes]:
        """Open the file for random access. Raises FileNotFoundError for any other path, and SourceError."""
        if not self.exists(path):
            raise FileNotFoundError(self.uri(path))
        state = state_of(self._address)
        if state.has_ranges and state.size >= 0:
            from pairmill.ops.read.places.ranges import (
                buffered,  # importing fsspec takes 0.05 s; see s3 in ops.read.source
            )

            return buffered(state.size, lambda start, end: range_of(self._address, start, end, state))
        return brought(self._address)

    def where(self, path: str) -> Place | None:
        """Return None: a web address is not permanent."""
        return None

    @property
    def _address(self) -> str:
        """The address with its query."""
        return f"{self.root}/{self.name}" + (f"?{self.query}" if self.query else "")


def web_tree(uri: str) -> WebTree:
    """Build the tree of one list or archive; send no request. Raises SourceError for an invalid address."""
    parts = urlsplit(uri)
    folder, _, name = parts.path.rpartition("/")
    plain = name.lower().removesuffix(".gz")
    if parts.username or parts.password:
        raise SourceError(f"source '{parts.scheme}://…@{parts.hostname}': no user and password in an address")
    if not plain.endswith(READABLE):
        raise SourceError(
            f"source '{without_secrets(uri)}': of the web only lists and archives are read: {', '.join(READABLE)}"
        )
    return WebTree(f"{parts.scheme}://{parts.netloc}{folder}", name, parts.query)
