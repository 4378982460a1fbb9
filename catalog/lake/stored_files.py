"""Sync files and their names to the disk, so that they survive a power cut; check uploads; hash files and their state.

A synced file may still be gone after a power cut: its name belongs to its folder, which is synced by itself. Whatever
a commit names is synced before the COMMIT, which SQLite syncs.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pairmill.catalog.terms.error import PairmillError


def sync(path: str) -> None:
    """Sync a local file or folder. Does nothing where the file system cannot sync folders, or the path is gone."""
    with suppress(OSError):
        opened = os.open(path, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def make_folder(path: str) -> None:
    """Create a folder with its parents, and sync the name of each new one."""
    new = []
    at = os.path.abspath(path)
    while not os.path.isdir(at) and at != os.path.dirname(at):
        new.append(at)
        at = os.path.dirname(at)
    os.makedirs(path, exist_ok=True)
    for folder in reversed(new):
        sync(os.path.dirname(folder))


def remove_file(path: str) -> None:
    """Remove a local file, whose name's end is synced, or an object on S3."""
    if path.startswith("s3://"):
        import fsspec  # only here is an object removed

        filesystem, place = fsspec.core.url_to_fs(path)
        filesystem.rm(place)
    else:
        with suppress(FileNotFoundError):
            os.remove(path)
        sync(os.path.dirname(path))


class SyncedNames:
    """Sync the names of files below ``root``. The names of folders are synced once; no other program removes them."""

    def __init__(self, root: str) -> None:
        self._root = root.rstrip("/")
        self._known: set[str] = set()

    def sync(self, files: Iterable[str]) -> None:
        """Sync the folder of each file (paths relative to ``root``), and the folders above that have new names."""
        changed = {os.path.dirname(file) for file in files}
        for folder in list(changed):
            while folder and folder not in self._known:
                self._known.add(folder)
                folder = os.path.dirname(folder)
                changed.add(folder)
        for folder in sorted(changed, reverse=True):
            sync(f"{self._root}/{folder}")


@contextmanager
def uploading(url: str) -> Iterator[None]:
    """Convert errors of S3 while ``url`` is uploaded into a PairmillError that names the object and the remedy."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, OSError) and not type(error).__module__.startswith("botocore."):
            raise
        raise _lost(url, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}") from error


def check_uploaded(filesystem: Any, url: str, size: int) -> None:
    """Raise PairmillError unless S3 holds the object ``url`` with ``size`` bytes.

    A store may acknowledge an upload and lose it, or a part of it. One HEAD request an object.
    """
    with uploading(url):
        try:
            held = filesystem.info(url, refresh=True)["size"]
        except FileNotFoundError:
            raise _lost(url, "S3 acknowledged the upload, and holds no such object") from None
    if held != size:
        raise _lost(url, f"S3 acknowledged the upload of {size:,} bytes, and holds {held:,}")


def _lost(url: str, why: str) -> PairmillError:
    """Return the error for an object that is not whole in its bucket."""
    return PairmillError(
        f"'{url}' cannot be written ({why}). Check the bucket's name, AWS_ENDPOINT_URL, AWS_REGION, the AWS keys and "
        "the store, and run the same command again: what is finished is kept."
    )


DIGITS = 32
_NAMED = re.compile(rf"-([0-9a-f]{{{DIGITS}}})\.parquet$")


def file_digest(path: str) -> str:
    """Return the sha256 of a local file's bytes as 64 hex digits, at about 1.5 GB/s. Raise OSError."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_stamp(path: str) -> str:
    """Return size, inode and times of a local file as one text, which changes if a program writes or copies the file.

    No program can set the change time (ctime). Bit rot does not change the stamp. Raise OSError.
    """
    found = os.stat(path)
    return f"{found.st_size}:{found.st_ino}:{found.st_mtime_ns}:{found.st_ctime_ns}"


def append_digest(path: str, sha256: str) -> str:
    """Append the first 128 bits of the sha256 to the name of a Parquet file and return the new path."""
    return f"{path.removesuffix('.parquet')}-{sha256[:DIGITS]}.parquet"


def digest_in_name(path: str) -> str:
    """Return the first 128 bits of the sha256 that a file name holds; '' for a name without a digest."""
    found = _NAMED.search(path)
    return found[1] if found else ""
