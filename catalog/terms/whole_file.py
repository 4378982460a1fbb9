"""Write a file so that it appears whole under its name, or not at all; cache values on this machine."""

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar


@contextmanager
def whole_file(path: str | Path, is_synced: bool = False) -> Iterator[Path]:
    """Yield the path of a temporary file beside ``path`` for the body to write; at its end, rename it to ``path``.

    The temporary file is removed if the body raises. With ``is_synced`` its content is on the disk before the rename:
    else a power cut may leave an empty file under the final name. Two threads of a process may not write one file.
    """
    unfinished = Path(f"{path}.{os.getpid()}.part")
    try:
        yield unfinished
        if is_synced:
            with unfinished.open("rb") as file:
                os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def cache_home() -> Path:
    """Return the folder of this user's caches, which may not exist yet.

    It is ``$XDG_CACHE_HOME/pairmill``, or ``~/.cache/pairmill`` if that variable is not set.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pairmill"


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Hold an exclusive lock on the file ``lock`` during the `with` block; without file locks, run it unlocked."""
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        held = lock.open("w")
    except OSError:
        yield
        return
    with held:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(held, fcntl.LOCK_EX)
        yield


Found = TypeVar("Found")


def cache_on_machine(
    name: str, key: tuple[str, ...], find: Callable[[], Found], is_valid: Callable[[Any], bool]
) -> Found:
    """Return the value cached for ``key`` in the file ``name``, or call ``find`` and cache its result.

    Of a machine's processes only one calls ``find`` at a time; the others wait for a file lock and read its result. An
    unreadable file counts as empty, a value that ``is_valid`` refuses as missing. Errors of writing are ignored.
    """
    entry, file = " ".join(key), cache_home() / name
    if entry in (known := _read_cache(file, is_valid)):
        return known[entry]
    with alone(file.with_suffix(".lock")):
        if entry in (known := _read_cache(file, is_valid)):
            return known[entry]
        found = find()
        with suppress(OSError), whole_file(file) as new:  # the folder may not be writable
            new.write_text(json.dumps({**_read_cache(file, is_valid), entry: found}, indent=1), encoding="utf-8")
    return found


def _read_cache(file: Path, is_valid: Callable[[Any], bool]) -> dict[str, Any]:
    """Read the valid entries of the cache file; {} if the file is missing or damaged."""
    try:
        known = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    entries = known.items() if isinstance(known, dict) else ()
    return {name: value for name, value in entries if is_valid(value)}
