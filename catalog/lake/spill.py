"""Where DuckDB puts what does not fit into memory: a folder for each instance.

Two instances that share a folder write into each other's files, and the first to close deletes the other's: DuckDB
1.5.5 names them by size alone (duckdb/duckdb issue 15173). DuckDB makes the folder when it first spills and removes it
when it closes; what a killed process left is removed when the next one opens.
"""

import os
import re
import shutil
import uuid
from pathlib import Path

import psutil

from catalog.lake.host import host

_NAME = re.compile(r"\.spill-(?P<host>.+)-(?P<pid>\d+)-[0-9a-f]{32}")


def folder(parent: str) -> str:
    """A path below ``parent`` that no other instance has; those of this machine's ended processes are removed."""
    for path in Path(parent).glob(".spill-*"):
        found = _NAME.fullmatch(path.name)
        if found and found["host"] == _here() and not psutil.pid_exists(int(found["pid"])):
            shutil.rmtree(path, ignore_errors=True)  # of another user, or being removed by another who opens
    return os.path.join(parent, f".spill-{_here()}-{os.getpid()}-{uuid.uuid4().hex}")


def _here() -> str:
    """This machine, in letters that a name may hold: a lake may lie on a shared disk."""
    return re.sub(r"[^\w.]", "-", host())
