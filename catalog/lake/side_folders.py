"""Name the folders beside a lake, or below the temporary folder: for caches, and for what DuckDB spills.

Files of a cache may be deleted at any time. Each instance of DuckDB spills into a folder of its own: two instances that
share one write into each other's files, and the first to close deletes the other's, because DuckDB 1.5.5 names them by
size alone (duckdb/duckdb issue 15173). DuckDB creates the folder at the first spill and removes it when it closes; the
folder of a killed process is removed when the next opens a lake. Samples, dry runs and new files have such folders too.
"""

import hashlib
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from pairmill.catalog.lake.host import host
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.terms.error import PairmillError


def cache_folder(lake: Lake, name: str) -> Path:
    """Return the folder ``.name`` beside a local lake's data, created if missing.

    A lake on S3, or one that this user may not write to, gets `own_cache_folder`.
    """
    if not lake.data_path.startswith("s3://"):
        folder = Path(lake.data_path).parent / f".{name}"
        with suppress(OSError):
            folder.mkdir(exist_ok=True)
            if os.access(folder, os.W_OK):
                return folder
    return own_cache_folder(lake, name)


def folder_of_people(lake: Lake, name: str) -> str:
    """Return the folder ``name`` of what people write: beside a local lake's data, or below its prefix on S3."""
    return f"{lake.data_path}{name}" if lake.data_path.startswith("s3://") else str(Path(lake.data_path).parent / name)


def reports_folder(uri: str) -> Path:
    """Return the reports folder of the lake at ``uri``: in the lake's own folder, or beside its lake.yaml."""
    place = Path(uri).expanduser().absolute()
    return (place if place.is_dir() else place.parent) / "reports"


def own_cache_folder(lake: Lake, name: str) -> Path:
    """Return a lake's folder below the temporary folder, this user's own. Raise PairmillError if it is another's."""
    mine = Path(tempfile.gettempdir()) / f"pairmill-{name}-{os.getuid()}"
    mine.mkdir(mode=0o700, exist_ok=True)
    if mine.stat().st_uid != os.getuid():
        raise PairmillError(f"{mine} belongs to another user. Set TMPDIR to a folder of your own.")
    folder = mine / hashlib.sha256(lake.data_path.encode()).hexdigest()[:16]
    folder.mkdir(exist_ok=True)
    return folder


def oldest_first(files: Iterable[Path]) -> list[tuple[Path, os.stat_result]]:
    """Return (file, status) of a cache's files, the oldest first; skip files that another process has removed."""
    found = []
    for path in files:
        with suppress(FileNotFoundError):
            found.append((path, path.stat()))
    return sorted(found, key=lambda each: each[1].st_mtime_ns)


def trim(files: Iterable[Path], most_bytes: int) -> int:
    """Remove the oldest files if all together exceed ``most_bytes``, down to nine tenths; return their number."""
    found = oldest_first(files)
    total = sum(each.st_size for _, each in found)
    removed = 0
    if total <= most_bytes:
        return removed
    for path, each in found:
        path.unlink(missing_ok=True)
        total, removed = total - each.st_size, removed + 1
        if total <= 0.9 * most_bytes:
            break
    return removed


_NAME = re.compile(r"\.spill-(?P<host>.+)-(?P<pid>\d+)-[0-9a-f]{32}")


def spill_folder(parent: str) -> str:
    """Return an unused path below ``parent``; remove the spill folders of this machine's ended processes."""
    remove_stale_spills(parent)
    return os.path.join(parent, f".spill-{_here()}-{os.getpid()}-{uuid.uuid4().hex}")


def remove_stale_spills(parent: str) -> list[tuple[str, str]]:
    """Remove the spill folders of this machine's ended processes; return (path, owner) of all other spill folders."""
    stay = []
    for path in Path(parent).glob(".spill-*"):
        if (found := _NAME.fullmatch(path.name)) is None:
            continue
        owner = f"process {found['pid']}" if found["host"] == _here() else f"a process on {found['host']}"
        if found["host"] == _here() and not psutil.pid_exists(int(found["pid"])):
            shutil.rmtree(path, ignore_errors=True)  # another user's folder, or another process is removing it
            owner = "an ended process of another user"
        if path.exists() and (found["host"], int(found["pid"])) != (_here(), os.getpid()):
            stay.append((str(path), owner))
    return stay


@contextmanager
def scratch_folder(parent: str | Path = "") -> Iterator[Path]:
    """Create a spill folder for the body's files, below the temporary folder by default, and remove it at the end."""
    folder = Path(spill_folder(str(parent) or tempfile.gettempdir()))
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def spill_parent(lake: Lake) -> Path:
    """Return the parent of a lake's spill folder: beside a local lake, else the system's temporary folder."""
    return Path(lake.query("SELECT current_setting('temp_directory')")[0][0]).parent


def _here() -> str:
    """Return this machine's name in characters valid in a file name, because a lake may be on a shared disk."""
    return re.sub(r"[^\w.]", "-", host())
