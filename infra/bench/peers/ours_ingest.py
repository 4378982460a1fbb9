"""Ingest a source into a new lake with a pool of two; says how many pictures it holds and what its workers held."""

from __future__ import annotations

import resource
import sys

from flows.opening import session
from flows.settings import Compute, load_recipe
from tasks import pool
from tasks.ingest import ingest

if __name__ == "__main__":
    source, lake = sys.argv[1:]
    with session(load_recipe("demo"), [source], lake, Compute(workers=2)) as opened:  # pyright: ignore[reportCallIssue]
        ingest(opened)
        ((pictures, n_bytes),) = opened.lake.query("SELECT count(*), sum(n_bytes) FROM images")
    pool._pool(2).shutdown()
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"{pictures} {n_bytes} {peak:.0f}")
