"""Run a Pairmill command and count the process's DuckDB statements and commits, with the time of each statement.

Run as ``python -m infra.bench.counted FILE COMMAND ...``; the words after FILE are arguments of ``pairmill``. FILE gets
one JSON object: ``duckdb`` (statements on the lake's connection), ``metadata`` (statements on its cursors: lease,
checksums), ``commits``, ``by_text`` (statement text to count and wall seconds). ``COUNTED_CPUS`` sets how many CPUs the
process sees.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections import defaultdict
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import duckdb

_COMMIT = re.compile(r"\s*COMMIT\b", re.IGNORECASE)
CPUS = int(os.environ.get("COUNTED_CPUS", "0"))
_DIGITS = re.compile(r"\b[0-9a-f]{32}\b|\d+")


class Counts:
    """Count the statements of one process."""

    def __init__(self) -> None:
        self.statements = {"duckdb": 0, "metadata": 0}
        self.commits = 0
        self.by_text: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])

    def add(self, where: str, sql: str, seconds: float) -> None:
        """Count one statement. Digits in its text become '#', so that statements of one form share an entry.

        The begin of a transaction, and the end of one that wrote nothing, take 0.1 ms and are not counted.
        """
        if sql in ("BEGIN", "END", "ROLLBACK"):
            return
        self.statements[where] += 1
        self.commits += bool(_COMMIT.match(sql))
        entry = self.by_text[_DIGITS.sub("#", " ".join(str(sql).split()))[:160]]
        entry[0] += 1
        entry[1] += seconds

    def report(self) -> dict[str, Any]:
        """Return the counts; statement texts in descending order of wall time."""
        texts = sorted(self.by_text.items(), key=lambda each: -each[1][1])
        return {**self.statements, "commits": self.commits, "by_text": {text: entry for text, entry in texts}}


class Counting:
    """Wrap a DuckDB connection and count each ``execute``; delegate everything else."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, counts: Counts, where: str) -> None:
        self._connection, self._counts, self._where = connection, counts, where

    def execute(self, sql: Any, *more: Any, **named: Any) -> Any:
        """Execute a statement, and count and time it."""
        began = time.perf_counter()
        try:
            return self._connection.execute(sql, *more, **named)
        finally:
            self._counts.add(self._where, sql, time.perf_counter() - began)

    def cursor(self) -> Counting:
        """Return a cursor whose statements count as ``metadata``."""
        return Counting(self._connection.cursor(), self._counts, "metadata")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def __enter__(self) -> Counting:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def count_duckdb(counts: Counts) -> None:
    """Count the statements of every connection that this process opens from now on."""
    connect = duckdb.connect

    def counting(*positional: Any, **named: Any) -> Any:
        found = connect(*positional, **named)
        if CPUS and "threads" not in named.get("config", {}):
            found.execute(f"SET threads = {CPUS}")  # DuckDB's own default on a machine with this many CPUs
        return Counting(found, counts, "duckdb")

    duckdb.connect = counting  # pyright: ignore


def main() -> None:
    """Run the command and write its counts; exit with the command's status."""
    out, words = Path(sys.argv[1]), sys.argv[2:]
    counts = Counts()
    count_duckdb(counts)
    if CPUS:
        os.sched_getaffinity = lambda pid: set(range(CPUS))
        os.cpu_count = lambda: CPUS
    # By the installed command, because a checkout to compare with may have its modules under other names.
    (command,) = entry_points(group="console_scripts", name="pairmill")
    pairmill = command.load()

    try:
        status = pairmill(words)
    finally:
        out.write_text(json.dumps(counts.report(), indent=1), encoding="utf-8")
    sys.exit(status)


if __name__ == "__main__":
    main()
