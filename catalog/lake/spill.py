"""Name the folder that DuckDB spills to when memory is insufficient: one per instance.

Two instances that share a folder write into each other's files, and the first to close deletes the other's: DuckDB
1.5.5 names them by size alone (duckdb/duckdb issue 15173). DuckDB creates the folder at the first spill and removes it
when it closes; the folder of a killed process is removed when the next process opens a lake.
"""

import os
import re
import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from pairmill.catalog.lake.host import host

if TYPE_CHECKING:
    from pairmill.catalog.lake.lake import Lake

_NAME = re.compile(r"\.spill-(?P<host>.+)-(?P<pid>\d+)-[0-9a-f]{32}")


def folder(parent: str) -> str:
    """Return an unused path below ``parent``; remove the spill folders of this machine's ended processes."""
    for path in Path(parent).glob(".spill-*"):
        found = _NAME.fullmatch(path.name)
        if found and found["host"] == _here() and not psutil.pid_exists(int(found["pid"])):
            # ignore_errors: another user's folder, or another process is removing it
            shutil.rmtree(path, ignore_errors=True)
    return os.path.join(parent, f".spill-{_here()}-{os.getpid()}-{uuid.uuid4().hex}")


def parent_of(lake: "Lake") -> Path:
    """Return the folder in which a lake's spill folder is: beside a local lake, else the system's temporary folder."""
    return Path(lake.query("SELECT current_setting('temp_directory')")[0][0]).parent


def _here() -> str:
    """Return this machine's name in characters valid in a file name, because a lake may be on a shared disk."""
    return re.sub(r"[^\w.]", "-", host())
