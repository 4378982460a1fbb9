"""Cache in a file what was measured on this machine's device, found by one process and read by the others."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pairmill.catalog.terms.whole_file import alone, cache_home, whole_file

Found = TypeVar("Found")


def remembered(name: str, key: tuple[str, ...], find: Callable[[], Found], is_valid: Callable[[Any], bool]) -> Found:
    """Return the cached value for ``key`` in the file ``name``; if there is none, call ``find`` and cache its result.

    ``key`` holds model, precision, device, side, share …. Among processes on one machine only one measures at a time;
    the others wait for a file lock and then read its result. An unreadable cache file counts as empty, and so does a
    value that is not valid. A folder that cannot be written is ignored.
    """
    entry, file = " ".join(key), cache_home() / name
    if entry in (known := _known(file, is_valid)):
        return known[entry]
    with alone(file.with_suffix(".lock")):
        if entry in (known := _known(file, is_valid)):
            return known[entry]
        found = find()
        _write(file, {**_known(file, is_valid), entry: found})
    return found


def _known(file: Path, is_valid: Callable[[Any], bool]) -> dict[str, Any]:
    """Read the valid entries of the cache file; {} if the file is missing or damaged."""
    try:
        known = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    entries = known.items() if isinstance(known, dict) else ()
    return {name: value for name, value in entries if is_valid(value)}


def _write(file: Path, known: dict[str, Any]) -> None:
    """Replace the cache file atomically; ignore a folder that cannot be written."""
    with suppress(OSError), whole_file(file) as new:
        new.write_text(json.dumps(known, indent=1), encoding="utf-8")
