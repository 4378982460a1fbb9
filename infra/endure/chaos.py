"""Interrupt a curation again and again; after each fault the next run must end in the undisturbed run's dataset.

From the repository's root: ``python -m infra.endure.chaos [--minutes 45] [--seed N] [--times 44] [--full]``. It prints
the seed, a line a fault, and stores the table: fault, times, survived, rows lost, files done again. With ``--full`` the
faults are a full disk at the beginning of each of the 31 steps of a run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from infra.endure.elsewhere_faults import ELSEWHERE
from infra.endure.fault_kinds import FAULTS, FULL, Victim, environment
from infra.endure.prefect_faults import PREFECT
from infra.endure.ray_faults import RAY
from infra.endure.readers_and_writers import beside_each_other
from infra.endure.trial_world import ROOT, TrialWorld, digests
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.terms.error import PairmillError

RESULT = ROOT / "infra" / "endure" / "results" / "chaos.json"
COMMITTED = 'SELECT "table", partition_id, rows, path FROM partitions'


@dataclass
class Line:
    """What one kind of fault has come to."""

    times: int = 0
    survived: int = 0
    rows_lost: int = 0
    files_again: int = 0
    notes: list[str] = field(default_factory=list)


class Chaos:
    """A world, the dataset of an undisturbed run, and the faults that runs over it meet."""

    def __init__(self, folder: Path, documents: int, seed: int) -> None:
        self.world, self.folder, self.chance = TrialWorld(folder / "world", documents), folder, random.Random(seed)
        began = time.monotonic()
        self.world.run(folder / "calm")
        self.seconds = time.monotonic() - began
        self.expected = digests(folder / "calm")
        self.table: dict[str, Line] = {}

    def interrupt(self, kind: str) -> None:
        """Let a fault of a kind hit a new run, run again, and note what came of it."""
        place = self.folder / "hit"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        if kind in ELSEWHERE:
            with ELSEWHERE[kind](place, self.chance) as (lake, strike, variables):
                self._note(kind, lake, strike, environment() | variables, place)
        else:
            self._note(kind, str(place / "lake"), (FAULTS | FULL | PREFECT | RAY)[kind], environment(), place)

    def _note(self, kind: str, lake: str, strike, variables: dict[str, str], place: Path) -> None:
        line = self.table.setdefault(kind, Line())
        line.times += 1
        with _environment(variables):
            strike(Victim(self.world.command(lake), place, self.seconds, self.chance, variables))
            before = _committed(lake)
            line.files_again += _not_committed(place / "lake", before)
            done = self._next_run(lake, variables)
            after = _committed(lake)
            lost = sum(rows for key, rows in before.items() if key not in after)
            line.rows_lost += lost
            is_same = done.returncode == 0 and digests(lake) == self.expected
        line.survived += is_same and not lost
        if not is_same or lost:
            line.notes.append(done.stderr.decode()[-300:])
        print(f"{kind}: {'same dataset' if is_same else 'ANOTHER OUTCOME'}, {lost} rows lost", flush=True)

    def _next_run(self, lake: str, variables: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(self.world.command(lake), cwd=ROOT, env=variables, capture_output=True, timeout=600)


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Let lakes that this process opens find their servers."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _committed(lake: str) -> dict[tuple[str, str, str], int]:
    """Return the rows of each committed partition with its file; {} of a lake that does not exist yet."""
    try:
        with create_or_open(lake, read_only=True) as opened:
            return {(table, name, path): rows for table, name, rows, path in opened.query(COMMITTED)}
    except PairmillError:
        return {}


def _not_committed(lake: Path, committed: dict[tuple[str, str, str], int]) -> int:
    """Count workers' files that no commit names: work that is done again."""
    named = {path for _, _, path in committed}
    files = (path.relative_to(lake / "data").as_posix() for path in (lake / "data").rglob("*/*/*/*.parquet"))
    return sum(path not in named for path in files)


def kinds_of(times: int, chance: random.Random) -> list[str]:
    """Return each kind once, those on servers elsewhere too, then random ones."""
    every = [*FAULTS, *ELSEWHERE, *PREFECT, *RAY]
    frequent = [kind for kind in every if kind != "stopped for longer than the lease"]  # that takes two minutes
    chosen = every if times >= len(every) else []
    return [*chosen, *(chance.choice(frequent) for _ in range(times - len(chosen)))]


def main() -> int:
    """Interrupt for a while, print and store the table; return 1 if a fault was not survived."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=45)
    parser.add_argument("--times", type=int, default=44)
    parser.add_argument("--full", action="store_true", help="a full disk in each step")
    parser.add_argument("--documents", type=int, default=6)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--beside-seconds", type=float, default=120, help="for readers beside writers, each database")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    end = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory() as folder:
        beside = [] if options.full else beside_each_other(Path(folder), options.beside_seconds)
        chaos = Chaos(Path(folder), options.documents, options.seed)
        try:
            for kind in FULL if options.full else kinds_of(options.times, chaos.chance):
                if time.monotonic() > end - 3 * chaos.seconds:
                    print("the time is up", flush=True)
                    break
                chaos.interrupt(kind)
        finally:  # print the table, whatever ends the trial
            status = report(options.seed, chaos.table, beside)
    return status


def report(seed: int, table: dict[str, Line], beside: list[dict]) -> int:
    """Print the table and store it beside the other kinds of fault; return 1 if a fault was not survived."""
    print(f"\n{'fault':48} times survived rows lost files again")
    for kind, line in sorted(table.items()):
        print(f"{kind:48} {line.times:5} {line.survived:8} {line.rows_lost:9} {line.files_again:11}")
    for row in beside:
        print(row)
    times, survived = (sum(getattr(line, name) for line in table.values()) for name in ("times", "survived"))
    print(f"{times} interruptions, {survived} survived")
    RESULT.parent.mkdir(exist_ok=True)
    stored = json.loads(RESULT.read_text()) if RESULT.exists() else {"faults": {}, "beside": []}
    faults = stored["faults"] | {kind: vars(line) for kind, line in table.items()}
    content = {"seed": seed, "faults": dict(sorted(faults.items())), "beside": beside or stored["beside"]}
    RESULT.write_text(json.dumps(content, indent=1) + "\n")
    return 0 if survived == times and all(row["errors"] == row["lost"] == 0 for row in beside) else 1


if __name__ == "__main__":
    sys.exit(main())
