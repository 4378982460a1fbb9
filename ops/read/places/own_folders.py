"""Recognise folders that Pairmill wrote (lakes and exports), which would feed a dataset with itself if read as sources.

A folder is recognised by its mark file. Older versions of Pairmill left no mark: there the names of files decide, and
the first bytes of an export's list. This module never opens a lake's catalog, because closing a SQLite file releases
the locks that this process holds on it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable

from pairmill.catalog.terms.mark import (
    EXPORT_FILE,
    FORMER_EXPORT_LISTS,
    FORMER_S3_MARK,
    FORMER_S3_MARK_BYTES,
    LAKE_CATALOG,
    LAKE_DATA,
    LAKE_TEXT,
    MARK,
)

_EXPORTED = re.compile(rf".+{EXPORT_FILE}")
_NAMED = frozenset((MARK, LAKE_CATALOG, FORMER_S3_MARK, *FORMER_EXPORT_LISTS))
_TABLE = "a table of a lake"
# An export's manifest begins with its identity; its list of files follows.
_HEAD_BYTES = 4096


def clue(name: str) -> str:
    """Return the clue that a file's name gives about its folder.

    The clue is the name itself if only Pairmill writes it, 'exported' for a shard of an export, and '' otherwise.
    """
    if name in _NAMED:
        return name
    return "exported" if name.endswith((".tar", ".parquet")) and _EXPORTED.fullmatch(name) else ""


def data_clue(path: str) -> tuple[str, str]:
    """Return the folder of the lake to which a data file's path points, and the clue; ('', '') for any other path."""
    at = path.find(f"{LAKE_DATA}/")
    return (path[:at], _TABLE) if at == 0 or (at > 0 and path[at - 1] == "/") else ("", "")


def is_own(clues: Iterable[str], has_data: Callable[[], bool], head: Callable[[str, int], bytes]) -> bool:
    """Return whether Pairmill wrote a folder, judged by the clues of its files' names.

    ``has_data()`` tells whether the folder holds a lake's data files; ``head(name, n)`` reads the first ``n`` bytes of
    a file of the folder.
    """
    found = frozenset(clues)
    if MARK in found or (LAKE_CATALOG in found and (_TABLE in found or has_data())):
        return True
    if FORMER_S3_MARK in found and head(FORMER_S3_MARK, FORMER_S3_MARK_BYTES + 1) == f"{LAKE_TEXT}\n".encode():
        return True
    lists = found.intersection(FORMER_EXPORT_LISTS) if "exported" in found else ()
    return any(b'"content_digest":' in (start := head(name, _HEAD_BYTES)) and b'"dataset":' in start for name in lists)


def left_out(path: str, own: Container[str] = ()) -> str:
    """Return the outermost part of ``path`` that is hidden or is a folder of ``own`` (which end in '/'); '' if none."""
    if path[:1] != "." and "/." not in path and not own:
        return ""
    parts = path.split("/")
    for n, name in enumerate(parts, 1):
        place = "/".join(parts[:n])
        if name.startswith(".") or f"{place}/" in own:
            return place
    return ""


LEFT_OUT = "a lake or an export of Pairmill, which no source reads"
ITSELF = (
    f"is {LEFT_OUT}; give the folder that holds the documents, and keep the lake outside of it (to read an export, "
    "copy its .tar or .parquet files to a folder of their own)"
)
HIDDEN = "its name begins with a dot: hidden files and folders are not read"
