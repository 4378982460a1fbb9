"""Run a command of Pairmill and count what its process asks of DuckDB: statements, commits, and the time of each.

Run as ``python -m infra.bench.counted FILE COMMAND ...``; the words behind FILE are those of ``pairmill``. It gets one
JSON object: ``duckdb`` (statements on the lake's connection), ``metadata`` (those on its cursors: lease, checksums),
``commits``, ``by_text`` (statement text to count and wall seconds). ``COUNTED_CPUS`` is the number of CPUs that the
process believes to have.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import duckdb

_COMMIT = re.compile(r"\s*COMMIT\b", re.IGNORECASE)
CPUS = int(os.environ.get("COUNTED_CPUS", "0"))
_DIGITS = re.compile(r"\b[0-9a-f]{32}\b|\d+")


class Counts:
    """Counts of one process."""

    def __init__(self) -> None:
        self.statements = {"duckdb": 0, "metadata": 0}
        self.commits = 0
        self.by_text: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])

    def add(self, where: str, sql: str, seconds: float) -> None:
        self.statements[where] += 1
        self.commits += bool(_COMMIT.match(sql))
        entry = self.by_text[_DIGITS.sub("#", " ".join(str(sql).split()))[:160]]
        entry[0] += 1
        entry[1] += seconds

    def report(self) -> dict[str, Any]:
        """Return the counts; texts by falling wall time."""
        texts = sorted(self.by_text.items(), key=lambda each: -each[1][1])
        return {**self.statements, "commits": self.commits, "by_text": {text: entry for text, entry in texts}}


class Counting:
    """A DuckDB connection that counts each ``execute``; everything else is the connection's own."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, counts: Counts, where: str) -> None:
        self._connection, self._counts, self._where = connection, counts, where

    def execute(self, sql: Any, *more: Any, **named: Any) -> Any:
        began = time.perf_counter()
        try:
            return self._connection.execute(sql, *more, **named)
        finally:
            self._counts.add(self._where, sql, time.perf_counter() - began)

    def cursor(self) -> Counting:
        return Counting(self._connection.cursor(), self._counts, "metadata")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def __enter__(self) -> Counting:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def count_duckdb(counts: Counts) -> None:
    """Have every connection that this process opens from now on counted."""
    connect = duckdb.connect

    def counting(*positional: Any, **named: Any) -> Any:
        found = connect(*positional, **named)
        if CPUS and "threads" not in named.get("config", {}):
            found.execute(f"SET threads = {CPUS}")  # as DuckDB itself would do on a machine with so many
        return Counting(found, counts, "duckdb")

    duckdb.connect = counting  # pyright: ignore


def main() -> None:
    out, words = Path(sys.argv[1]), sys.argv[2:]
    counts = Counts()
    count_duckdb(counts)
    if CPUS:
        os.sched_getaffinity = lambda pid: set(range(CPUS))
        os.cpu_count = lambda: CPUS
    from pairmill.flows.command.cli import main as pairmill

    try:
        status = pairmill(words)
    finally:
        out.write_text(json.dumps(counts.report(), indent=1), encoding="utf-8")
    sys.exit(status)


if __name__ == "__main__":
    main()
