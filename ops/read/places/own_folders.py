"""Recognise folders that Pairmill wrote (lakes and exports), so that a dataset is not fed with itself.

A folder is recognised by its mark file, a lake's folder also by the names of its catalog and its data. This module
never opens a lake's catalog, because closing a SQLite file releases the locks that this process holds on it.
"""

from collections.abc import Callable, Container, Iterable

from pairmill.catalog.terms.mark import LAKE_CATALOG, LAKE_DATA, MARK

_TABLE = "a table of a lake"


def clue(name: str) -> str:
    """Return ``name`` if only Pairmill writes files of this name, as a sign of its folder; else ''."""
    return name if name in (MARK, LAKE_CATALOG) else ""


def data_clue(path: str) -> tuple[str, str]:
    """Return (folder of the lake that a data file's path points to, sign of it); ('', '') for any other path."""
    at = path.find(f"{LAKE_DATA}/")
    return (path[:at], _TABLE) if at == 0 or (at > 0 and path[at - 1] == "/") else ("", "")


def is_own(clues: Iterable[str], has_data: Callable[[], bool]) -> bool:
    """Return whether Pairmill wrote a folder: by the signs of its file names, and by ``has_data()``, a lake's data."""
    found = frozenset(clues)
    return MARK in found or (LAKE_CATALOG in found and (_TABLE in found or has_data()))


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
