"""Let three readers and two writers use one lake at once, on SQLite and on Postgres; nobody fails, nothing is lost.

A writer waits for the lease, commits some partitions, and lets it go. As a script one of them:
``python -m infra.endure.readers_and_writers reader|writer LAKE NAME SECONDS``. It prints counts as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.endure.fault_kinds import environment
from infra.endure.trial_world import ROOT
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write import lease
from tests.worlds.elsewhere import postgres_server, write_yaml
from tests.worlds.partitions import partition

READERS, WRITERS = 3, 2
COMMITS = 5  # while a writer has the lease
COUNTS = "SELECT (SELECT count(*) FROM image_hash), (SELECT coalesce(sum(rows), 0) FROM partitions)"


def write(lake: str, name: str, seconds: float) -> dict[str, int]:
    """Commit partitions of two rows until the time is up; return their number, and how often the lease was awaited."""
    end, done = time.monotonic() + seconds, {"commits": 0, "turns": 0, "errors": 0}
    while time.monotonic() < end:
        with create_or_open(lake) as opened, lease.writing(opened, name, "work", wait_seconds=60) as writer:
            done["turns"] += 1
            for _ in range(COMMITS):
                key = f"{name}-{done['commits']}"
                writer.commit([partition(opened, key, [f"{key}a", f"{key}b"], writer.begin("step"), name)])
                done["commits"] += 1
    return done


def read(lake: str, name: str, seconds: float) -> dict[str, int]:
    """Count rows until the time is up; a count that falls, or differs from that of `partitions`, is an error."""
    end, done, newest = time.monotonic() + seconds, {"reads": 0, "errors": 0}, 0
    while time.monotonic() < end:
        try:
            with create_or_open(lake, read_only=True) as opened:
                rows, counted = opened.query(COUNTS)[0]
            done["errors"] += rows != counted or rows < newest
            newest = rows
        except PairmillError as error:
            print(f"{name}: {error}", file=sys.stderr)
            done["errors"] += 1
        done["reads"] += 1
    return done


def beside_each_other(folder: Path, seconds: float) -> list[dict]:
    """Run readers and writers on both databases; return a row of counts for each."""
    found = []
    for database in ("SQLite", "Postgres"):
        with _lake(folder / database, database) as lake:
            create_or_open(lake).close()
            roles = [f"reader {n}" for n in range(READERS)] + [f"writer {n}" for n in range(WRITERS)]
            found.append({"database": database, "seconds": seconds, **_together(lake, roles, seconds)})
            print(found[-1], flush=True)
    return found


def _together(lake: str, roles: list[str], seconds: float) -> dict[str, int]:
    command = [sys.executable, "-m", "infra.endure.readers_and_writers"]
    processes = [
        subprocess.Popen(
            [*command, role.split()[0], lake, role.replace(" ", ""), str(seconds)],
            cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True,
        )
        for role in roles
    ]  # fmt: skip
    told = [process.communicate(timeout=seconds + 300)[0] for process in processes]
    sums: dict[str, int] = {"failed": sum(process.returncode != 0 for process in processes)}
    for counts in (json.loads(each) for each in told if each):
        sums |= {name: sums.get(name, 0) + n for name, n in counts.items()}
    with create_or_open(lake, read_only=True) as opened:
        rows = opened.query(COUNTS)[0][0]
    sums["errors"] += sums.pop("failed")
    return sums | {"rows": rows, "lost": 2 * sums["commits"] - rows}


@contextmanager
def _lake(folder: Path, database: str) -> Iterator[str]:
    if database == "SQLite":
        yield str(folder)
        return
    with postgres_server() as server:
        yield str(write_yaml(folder, metadata=server.url, data_path="data"))


if __name__ == "__main__":
    role, lake, name, seconds = sys.argv[1:]
    print(json.dumps((read if role == "reader" else write)(lake, name, float(seconds))))
