"""Where DuckDB puts what does not fit into memory: a folder for each instance.

Two instances that share a folder write into each other's files, and the first to close deletes the other's: DuckDB
1.5.5 names them by size alone (duckdb/duckdb issue 15173). DuckDB makes the folder when it first spills and removes it
when it closes; what a killed process left is removed when the next one opens.
"""

import os
import re
import shutil
import socket
import uuid
from pathlib import Path

import psutil

_NAME = re.compile(r"\.spill-(?P<host>.+)-(?P<pid>\d+)-[0-9a-f]{32}")


def folder(parent: str) -> str:
    """A path below ``parent`` that no other instance has; those of this machine's ended processes are removed."""
    for path in Path(parent).glob(".spill-*"):
        found = _NAME.fullmatch(path.name)
        if found and found["host"] == _host() and not psutil.pid_exists(int(found["pid"])):
            shutil.rmtree(path, ignore_errors=True)  # of another user, or being removed by another who opens
    return os.path.join(parent, f".spill-{_host()}-{os.getpid()}-{uuid.uuid4().hex}")


def _host() -> str:
    """Of this machine and its process-number space, as the lease tells them apart: a lake may lie on a shared disk."""
    try:
        space = re.sub(r"\D", "", os.readlink("/proc/self/ns/pid"))
    except OSError:
        space = "0"
    return f"{socket.gethostname()}-{space}"
