"""Ingest a source into a new lake with two workers; print the pictures, their bytes and the workers' peak in MB."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil

from pairmill.flows.run.run_start import session
from pairmill.flows.run.settings import Compute, load_recipe
from pairmill.tasks.collect.ingest import ingest


def peak_mb(pid: int) -> int:
    """Return the peak memory of a process in MB, including pages shared with the process it was forked from."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) // 1024


if __name__ == "__main__":
    source, lake = sys.argv[1:]
    with session(load_recipe("demo"), [source], lake, Compute(workers=2)) as opened:  # pyright: ignore[reportCallIssue]
        ingest(opened)
        ((pictures, n_bytes),) = opened.lake.query("SELECT count(*), sum(n_bytes) FROM images")
    peak = max(peak_mb(process.pid) for process in psutil.Process().children(recursive=True))
    print(f"{pictures} {n_bytes} {peak}")
