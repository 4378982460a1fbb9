"""Which machine this is, and whether one of its processes still runs."""

import os
import socket
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    pass


def host() -> str:
    """The name of this machine and of its process-number space: two containers may share the one, not the other."""
    try:
        return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def is_running(pid: int, started: float) -> bool:
    """Whether this very process runs still: the number may have been given to another since."""
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and abs(process.create_time() - started) < 1.0
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
