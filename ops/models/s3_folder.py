"""Copy a model's folder from S3 to the cache that all processes of a machine share.

A copy is complete or absent. Its folder name is a hash of the names, sizes and etags of the objects, so that a replaced
model is copied again, beside the former one. Copies stay until a user deletes them, as the hub's do.
"""

import hashlib
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path, PurePosixPath

from pairmill.catalog.terms.whole_file import alone, cache_home
from pairmill.ops.models.model_error import ModelError

S3 = "s3://"
# One connection to S3 gives some 80 MB/s. Eight ranges in flight hold 256 MB of memory.
AT_ONCE, RANGE_BYTES = 8, 32 * 2**20


@dataclass(frozen=True)
class S3Folder:
    """The files of a model below an S3 prefix."""

    uri: str  # 's3://BUCKET/PREFIX', without a last slash
    files: tuple[tuple[str, int, str], ...]  # (relative name, bytes, etag), sorted

    @property
    def size(self) -> int:
        """Size of all files together, in bytes."""
        return sum(size for _, size, _ in self.files)

    @property
    def copy(self) -> Path:
        """The path of this machine's copy of the folder; it may not exist yet."""
        name = hashlib.sha256(repr((self.uri, self.files)).encode()).hexdigest()[:32]
        return cache_home() / "models" / name


@cache
def s3_folder(spec: str, uri: str, patterns: tuple[str, ...]) -> Path:
    """Copy the files below ``uri`` whose names match ``patterns`` to the cache, if they are missing; return the folder.

    A process lists the folder once. Of several processes one copies, and the others wait for it. Raises ModelError if
    the folder is missing or empty, S3 or the disk refuses, or the model changed during the copy.
    """
    found = list_folder(spec, uri, patterns)
    if found.copy.is_dir():
        return found.copy
    with alone(found.copy.with_suffix(".lock")):
        if not found.copy.is_dir():
            _copy(spec, found, patterns)
    return found.copy


def list_folder(spec: str, uri: str, patterns: tuple[str, ...]) -> S3Folder:
    """List a model's files below ``uri``, with one request per 1,000 files. Raises ModelError as `s3_folder` does."""
    # s3fs takes 0.5 s, which a model of this machine need not pay.
    from pairmill.ops.read.places.s3 import filesystem, translate_errors
    from pairmill.ops.read.places.tree import SourceError

    root = uri.removeprefix(S3).strip("/")
    try:
        found = translate_errors(uri, lambda: filesystem().find(root, detail=True))
    except (FileNotFoundError, PermissionError) as error:
        why = f"{error or 'no such bucket'}; check the address and the credentials"
        raise ModelError(f"model '{spec}': {why}") from error
    except SourceError as error:
        raise ModelError(f"model '{spec}': {error}") from error
    files = sorted(
        (key.removeprefix(f"{root}/"), int(about["size"]), str(about["ETag"]).strip('"'))
        for key, about in found.items()
        if any(fnmatch(PurePosixPath(key).name, pattern) for pattern in patterns)
    )
    if not files:
        raise ModelError(f"model '{spec}': no model's files below {uri}; check the address")
    return S3Folder(S3 + root, tuple(files))


def _copy(spec: str, found: S3Folder, patterns: tuple[str, ...]) -> None:
    """Copy all files to a folder beside the final one, then rename it. Raises ModelError as `s3_folder` does."""
    from pairmill.ops.read.places.tree import SourceError

    unfinished = found.copy.with_suffix(".unfinished")
    try:
        shutil.rmtree(unfinished, ignore_errors=True)  # of a process that was killed
        unfinished.mkdir(parents=True)
        if (free := shutil.disk_usage(unfinished).free) < found.size:
            needs = f"{found.size / 1e9:.1f} GB are needed in {unfinished.parent}, {free / 1e9:.1f} GB are free"
            raise ModelError(f"model '{spec}': {needs}; set XDG_CACHE_HOME to a folder on a larger disk")
        for name, size, _ in found.files:
            _copy_file(f"{found.uri}/{name}", unfinished / _safe(spec, name), size)
        if list_folder(spec, found.uri, patterns) != found:
            raise ModelError(f"model '{spec}': it changed while it was copied; run again")
        unfinished.rename(found.copy)
    except (OSError, SourceError) as error:
        raise ModelError(f"model '{spec}': it could not be copied to {unfinished.parent} ({error})") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _copy_file(uri: str, file: Path, size: int) -> None:
    """Copy one object of ``size`` bytes, in ranges side by side. Raises OSError and SourceError."""
    from pairmill.ops.read.places.s3 import range_of

    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as out, ThreadPoolExecutor(AT_ONCE) as threads:
        out.truncate(size)

        def copy(start: int) -> None:
            end = min(size, start + RANGE_BYTES)
            os.pwrite(out.fileno(), range_of(uri, start, end), start)

        list(threads.map(copy, range(0, size, RANGE_BYTES)))
        out.flush()
        os.fsync(out.fileno())


def _safe(spec: str, name: str) -> PurePosixPath:
    """Return a key's name as a relative path. Raises ModelError for one that would leave the folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise ModelError(f"model '{spec}': the key {name!r} would leave its folder; rename it")
    return path
