"""Find the folder for files that may be deleted at any time, beside the lake or below the temporary folder; trim it."""

import hashlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.terms.error import PairmillError


def cache_folder(lake: Lake, name: str) -> Path:
    """Return the folder ``.name`` beside a local lake's data, created if missing.

    A lake on S3, or one that this user may not write to, gets `own_cache_folder`.
    """
    if not lake.data_path.startswith("s3://"):
        folder = Path(lake.data_path).parent / f".{name}"
        try:
            folder.mkdir(exist_ok=True)
        except OSError:
            pass
        else:
            if os.access(folder, os.W_OK):
                return folder
    return own_cache_folder(lake, name)


def own_cache_folder(lake: Lake, name: str) -> Path:
    """Return a lake's folder below the temporary folder, this user's own. Raise PairmillError if it is another's."""
    mine = Path(tempfile.gettempdir()) / f"pairmill-{name}-{os.getuid()}"
    mine.mkdir(mode=0o700, exist_ok=True)
    if mine.stat().st_uid != os.getuid():
        raise PairmillError(f"{mine} belongs to another user. Set TMPDIR to a folder of your own.")
    folder = mine / hashlib.sha256(lake.data_path.encode()).hexdigest()[:16]
    folder.mkdir(exist_ok=True)
    return folder


def trim(files: Iterable[Path], most_bytes: int) -> int:
    """Remove the oldest files if all together exceed ``most_bytes``, down to nine tenths; return their number."""
    found = [(path.stat(), path) for path in files]
    total = sum(each.st_size for each, _ in found)
    removed = 0
    if total <= most_bytes:
        return removed
    for each, path in sorted(found, key=lambda one: one[0].st_mtime_ns):
        path.unlink(missing_ok=True)
        total, removed = total - each.st_size, removed + 1
        if total <= 0.9 * most_bytes:
            break
    return removed
