"""Seal a lake's SQLite catalog while nobody writes to it: its sha256 in a file beside it, which all who open it check.

SQLite checks no page: a byte changed in a row is another row. The last writer to close writes the seal, the next one to
open removes it, so a lake that is being written to, or whose writer was killed, has none.
"""

import json
import os
from contextlib import suppress

from catalog.lake.digest import file_digest, file_stamp
from catalog.lake.location import Location
from catalog.terms.error import Damaged


def write(location: Location) -> None:
    """Seal the catalog, unless another process has just begun to write to it. Raises OSError."""
    content = {"stamp": file_stamp(location.metadata), "sha256": file_digest(location.metadata)}
    half = f"{_path(location)}.{os.getpid()}.part"
    with open(half, "w", encoding="utf-8") as file:
        json.dump(content, file)
    os.replace(half, _path(location))
    if _is_in_use(location):
        remove(location)


def remove(location: Location) -> None:
    """Remove the seal: the catalog is going to change."""
    with suppress(OSError):
        os.remove(_path(location))


def check(location: Location) -> None:
    """Raise Damaged when the catalog is not what was sealed. One that no program has touched is not read again."""
    if location.on_postgres or _is_in_use(location) or (sealed := _read(location)) is None:
        return
    try:
        if sealed.get("stamp") == file_stamp(location.metadata):
            return
        is_whole = sealed.get("sha256") == file_digest(location.metadata)
    except FileNotFoundError:
        raise Damaged(
            f"lake '{location.uri}': its catalog {location.metadata} is gone. Put it back from a copy of the lake; the "
            "data was not touched."
        ) from None
    # One who began to write meanwhile has taken the seal away.
    if not is_whole and not _is_in_use(location) and _read(location) == sealed:
        raise Damaged(
            f"lake '{location.uri}': its catalog {location.metadata} is damaged: it is not as it was last closed. Put "
            "it back from a copy of the lake, with its .seal; if another program was meant to change it, delete that."
        )


def _read(location: Location) -> dict | None:
    """Return what the seal says; None without one, {} for one that is no JSON."""
    try:
        with open(_path(location), "rb") as file:
            content = json.loads(file.read())
    except FileNotFoundError:
        return None
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _is_in_use(location: Location) -> bool:
    return os.path.exists(f"{location.metadata}-wal")


def _path(location: Location) -> str:
    return f"{location.metadata}.seal"
