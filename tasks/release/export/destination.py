"""Write files to a local folder or an s3:// prefix; each file appears complete or not at all."""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import fsspec
from botocore.exceptions import BotoCoreError, ClientError

from pairmill.catalog.lake.stored_files import check_uploaded, uploading
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.mark import EXPORT_LISTS
from pairmill.tasks.run.items.partition import HashingFile

MANIFEST, PROGRESS = EXPORT_LISTS
CARD = "README.md"
CREDITS = "CREDITS.tsv"
CHECKSUMS = "SHA256SUMS"  # of each file its sha256, in the form that `sha256sum -c` reads
# botocore sends a request up to 3 times and s3fs repeats that up to S3_ROUNDS times, also for broken connections: a
# silent server is given up after 3 minutes. With s3fs's own 5 rounds and 60 s it would take 20 minutes.
_S3: dict[str, Any] = {
    "config_kwargs": {"connect_timeout": 5, "read_timeout": 20, "retries": {"total_max_attempts": 3}}
}
S3_ROUNDS = 3
# Looks like an address: `s3:/bucket`, `S3://bucket`, `gs://bucket`. A single letter would be a drive.
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+:/|s3:", re.IGNORECASE)
_TROUBLE = (OSError, BotoCoreError, ClientError)


@dataclass(frozen=True)
class Written:
    """A finished file of an export: name, number of rows, size in bytes, and sha256 in 64 hex digits."""

    name: str
    rows: int
    bytes: int
    sha256: str


class ExportFile(HashingFile):
    """A file of an export that is being written. Raises PairmillError if the disk or S3 refuses."""

    def __init__(self, file: Any, explaining_errors: Callable[[], AbstractContextManager[None]]) -> None:
        super().__init__(file)
        self._explaining_errors = explaining_errors

    def write(self, data: Any) -> int:
        """Write bytes; return their number."""
        with self._explaining_errors():
            return super().write(data)

    def written(self, name: str, rows: int) -> Written:
        """Return the record of this file, once all bytes are written, with its size and sha256."""
        return Written(name, rows, self.n_bytes, self.digest.hexdigest())


class Destination:
    """The folder of an export: ``uri`` is an absolute local path or an s3:// prefix, without a trailing slash.

    Every method raises PairmillError with the remedy when the folder cannot be read or written. So does the constructor
    for an address that is neither.
    """

    def __init__(self, uri: str) -> None:
        is_s3 = uri.startswith("s3://")
        if _ADDRESS.match(uri) and not (is_s3 and uri[5:].strip("/")):
            raise PairmillError(
                f"'{uri}' is neither a folder nor a place on S3; write s3://BUCKET/PREFIX with two slashes, or "
                f"./{uri} for a folder of that name."
            )
        self.uri = uri.rstrip("/") if is_s3 else os.path.abspath(os.path.expanduser(uri))
        self._filesystem, self._root = fsspec.core.url_to_fs(self.uri, **(_S3 if is_s3 else {}))
        self._is_local = not is_s3
        if is_s3:
            self._filesystem.retries = S3_ROUNDS

    @contextmanager
    def _explaining_errors(self, *expected: type[Exception]) -> Iterator[None]:
        """Convert disk and S3 errors, except those ``expected``, into a PairmillError with the remedy."""
        try:
            yield
        except expected:
            raise
        except _TROUBLE as error:
            check = "that the folder can be written and its disk has room" if self._is_local else (
                "the bucket's name, AWS_ENDPOINT_URL, AWS_REGION and the AWS keys"
            )  # fmt: skip
            raise PairmillError(
                f"'{self.uri}' cannot be written ({type(error).__name__}: {' '.join(str(error).split())[:300]}). Check "
                f"{check}, and run the same command again: finished files are kept."
            ) from error

    def prepare(self) -> None:
        """Create the folder if it is local; a prefix on S3 needs none."""
        if self._is_local:
            with self._explaining_errors():
                os.makedirs(self._root, exist_ok=True)

    @contextmanager
    def file(self, name: str) -> Iterator[ExportFile]:
        """Open a new file for writing; it appears under ``name`` only if the ``with`` block ends without an error."""
        path = f"{self._root}/{name}"
        place = f"{path}.part" if self._is_local else path
        with self._explaining_errors():
            if self._is_local and "/" in name:
                os.makedirs(os.path.dirname(path), exist_ok=True)
            file = self._filesystem.open(place, "wb", autocommit=self._is_local)
        try:
            explaining = self._explaining_errors if self._is_local else partial(uploading, f"{self.uri}/{name}")
            out = ExportFile(file, explaining)
            yield out
            with explaining():
                if self._is_local:
                    file.flush()
                    os.fsync(file.fileno())  # else a power cut may leave an empty file under the final name
                file.close()
                os.replace(place, path) if self._is_local else file.commit()
            if not self._is_local:
                check_uploaded(self._filesystem, f"{self.uri}/{name}", out.n_bytes)
        except BaseException:
            with suppress(Exception):
                if self._is_local:
                    file.close()
                    os.remove(place)
                else:
                    self._filesystem.retries = 1  # an unreachable server has nothing to abort
                    file.closed = True  # else fsspec closes the file when it is collected, which uploads the half of it
                    file.discard()
            raise

    def read_json(self, name: str) -> dict[str, Any]:
        """Read a small JSON file; {} if it does not exist or is no JSON object."""
        content = None
        with suppress(FileNotFoundError, ValueError), self._explaining_errors(FileNotFoundError):
            content = json.loads(self._filesystem.cat_file(f"{self._root}/{name}"))
        return content if isinstance(content, dict) else {}

    def write(self, name: str, data: bytes) -> None:
        """Write ``data`` as the file ``name``."""
        with self.file(name) as out:
            out.write(data)

    def write_list(self, name: str, head: dict[str, Any], files: list[Written]) -> None:
        """Write the object ``head``, with the list ``files`` added, as the JSON file ``name``."""
        self.write_json(name, {**head, "files": [asdict(file) for file in files]})

    def write_json(self, name: str, content: dict[str, Any]) -> None:
        """Write ``content`` as the JSON file ``name``, indented by 1."""
        self.write(name, json.dumps(content, indent=1).encode() + b"\n")

    def write_card(self, text: str) -> None:
        """Write the dataset card README.md, unless the folder has one, which its owner may have edited."""
        if CARD not in self.names():
            self.write(CARD, text.encode())

    def holds(self, file: Written) -> bool:
        """Return whether the file exists with its size; its bytes are not read again."""
        with suppress(FileNotFoundError), self._explaining_errors(FileNotFoundError):
            return self._filesystem.info(f"{self._root}/{file.name}")["size"] == file.bytes
        return False

    def has(self, name: str) -> bool:
        """Return whether there is a file ``name``."""
        with self._explaining_errors():
            return self._filesystem.isfile(f"{self._root}/{name}")

    def size_of(self, name: str) -> int:
        """Return the size of the file ``name`` in bytes, 0 if there is none."""
        with suppress(FileNotFoundError), self._explaining_errors(FileNotFoundError):
            return self._filesystem.info(f"{self._root}/{name}")["size"]
        return 0

    def sha256_of(self, name: str) -> str:
        """Return the sha256 of the file ``name`` in 64 hex digits, '' if there is none."""
        with suppress(FileNotFoundError), self._explaining_errors(FileNotFoundError):
            return hashlib.sha256(self._filesystem.cat_file(f"{self._root}/{name}")).hexdigest()
        return ""

    def lines(self, name: str) -> Iterator[bytes]:
        """Yield the lines of the file ``name``, each with its end."""
        with self._explaining_errors(), self._filesystem.open(f"{self._root}/{name}", "rb") as file:
            yield from file

    def remove(self, name: str) -> None:
        """Remove the file ``name``, if it exists."""
        with suppress(FileNotFoundError), self._explaining_errors(FileNotFoundError):
            self._filesystem.rm_file(f"{self._root}/{name}")

    def names(self) -> list[str]:
        """List the names of the files and folders in this folder, sorted; [] if it does not exist."""
        self._filesystem.invalidate_cache()
        with suppress(FileNotFoundError), self._explaining_errors(FileNotFoundError):
            found = os.listdir(self._root) if self._is_local else self._filesystem.ls(self._root, detail=False)
            return sorted(path.rsplit("/", 1)[-1] for path in found)
        return []
