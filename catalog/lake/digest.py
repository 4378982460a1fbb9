"""Compute the sha256 of a file, name a file by it, and make a stamp that changes whenever a program writes to it."""

import hashlib
import os
import re

DIGITS = 32
_NAMED = re.compile(rf"-([0-9a-f]{{{DIGITS}}})\.parquet$")


def file_digest(path: str) -> str:
    """Return the sha256 of a local file's bytes, 64 hex digits; some 1.5 GB/s. Raises OSError."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_stamp(path: str) -> str:
    """Return size, inode and times of a local file: equal as long as no program has written or copied it.

    The time of change cannot be set by a program. What a disk forgets by itself leaves all as it was. Raises OSError.
    """
    found = os.stat(path)
    return f"{found.st_size}:{found.st_ino}:{found.st_mtime_ns}:{found.st_ctime_ns}"


def named_by(path: str, sha256: str) -> str:
    """Return the path of a Parquet file with the first 128 bits of its sha256 at the end of its name."""
    return f"{path.removesuffix('.parquet')}-{sha256[:DIGITS]}.parquet"


def digest_in_name(path: str) -> str:
    """Return the first 128 bits of the sha256 that a file of this name must have; '' for a name without one."""
    found = _NAMED.search(path)
    return found[1] if found else ""
