"""Identify this machine, and tell whether one of its processes still runs."""

import os
import socket
from pathlib import Path

import psutil


def host() -> str:
    """Return the host name and its pid namespace: two containers may share the name, but not the namespace."""
    try:
        return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def host_since_boot() -> str:
    """Return `host` with the current boot's id: processes with equal values see each other's pids."""
    try:
        return f"{host()} {Path('/proc/sys/kernel/random/boot_id').read_text().strip()}"
    except OSError:
        return host()


def is_running(pid: int, started: float) -> bool:
    """Return whether the process started at ``started`` (seconds since 1970) still runs; its pid may be reused."""
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and abs(process.create_time() - started) < 1.0
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
