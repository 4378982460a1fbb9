"""Let a lake live for 30 nights: new documents, runs, random kills, retries, maintenance, and three readers all along.

A night's time passes by dating snapshots and files back by a day. At the end: one version a night, every item accounted
for, files and memory bounded, the last night as fast as the fifth. From the repository's root:
``python -m infra.endure.soak [--nights 30] [--documents 20] [--seed N]``. It stores a table and a plot.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from infra.bench import nights
from infra.bench.measure import timed
from infra.endure.fault_kinds import environment
from infra.endure.soak_plot import plot
from infra.endure.trial_world import ROOT, TrialWorld
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.write import lease
from tests.worlds.generated import generate

RESULTS = ROOT / "infra" / "endure" / "results"
EARLY = 5  # the middle of the three nights that later ones are compared with
KILLED_SHARE, RETRY_EVERY, PROBED_COMMITS = 0.3, 4, 50
# The recipe's own shards: a night's documents are one. Of shards of two documents, ten a night, 15 nights left 2,000
# files, and a run took 23 to 29 CPU s where it had taken 18: each cluster range opens all files of the vector index.
PER_SHARD = 64
# The most that the last three nights may have of what the three around EARLY had.
BOUNDED = {"run_yardsticks": 1.3, "commit_p99_s": 2.0, "reader_mb": 1.3, "open_cpu_s": 1.5}
# Half a CPU second of DuckDB and Python, before and after each run: the speed of a shared core varies by half within
# the half hour that the nights take.
YARDSTICK = """
import duckdb
duckdb.sql("SET threads = 1; SELECT sum(hash(i)) FROM range(30_000_000) r(i)").fetchall()
sum(i * i for i in range(5_000_000))
"""
ACCOUNTED = """SELECT (SELECT count(*) FROM datasets WHERE name = 'demo'), (SELECT count(DISTINCT uri) FROM documents),
(SELECT count(*) FROM images), (SELECT count(*) FROM decisions WHERE dataset = 'demo' AND version = (SELECT
max(version) FROM datasets WHERE name = 'demo') AND kind = 'image')"""
READER = """
import sys, time
from pairmill.catalog.lake.opening import create_or_open
while True:
    with create_or_open(sys.argv[1], read_only=True) as lake:
        lake.query("SELECT count(*), (SELECT count(*) FROM pairs), (SELECT count(*) FROM partitions) FROM images")
    time.sleep(1)
"""
Night = dict[str, float]


class Soak:
    """A lake in ``folder`` with a corpus that grows by ``documents`` a night."""

    def __init__(self, folder: Path, documents: int, seed: int) -> None:
        self.world = TrialWorld(folder / "world", 2, per_shard=PER_SHARD)
        self.folder, self.documents = folder, documents
        self.world.pages = folder / "corpus"
        self.lake, self.chance, self.seed = folder / "lake", random.Random(seed), seed
        self.kills = 0

    def arrive(self, night: int) -> None:
        """Add the documents of a night to the corpus."""
        made = generate(self.folder / "made", self.seed * 1000 + night, self.documents)
        shutil.move(made, self.world.pages / f"night-{night:02}")
        shutil.rmtree(self.folder / "made")

    def pass_night(self, number: int, readers: list[psutil.Process]) -> Night:
        """Let one night pass; return what was measured at its end."""
        self.arrive(number)
        if number > 0 and self.chance.random() < KILLED_SHARE:
            self._killed()
        yardstick = [sys.executable, "-c", YARDSTICK]
        before, run, after = (self._cpu(each) for each in (yardstick, self.world.command(self.lake), yardstick))
        found: Night = {"run_cpu_s": run, "run_yardsticks": 2 * run / (before + after)}
        if number % RETRY_EVERY == RETRY_EVERY - 1:
            self._cpu(self.world.retry(self.lake))
        found["maintain_cpu_s"] = self._cpu(self.world.pairmill("maintain", "--lake", str(self.lake)))
        nights.day_passes(self.lake)
        return found | self._measured(readers)

    def _killed(self) -> None:
        with self._begun(self.world.command(self.lake)) as process:
            time.sleep(self.chance.uniform(3, 15))
            process.send_signal(signal.SIGKILL)
        self.kills += 1

    def _cpu(self, command: list[str]) -> float:
        """Run a command; return the CPU seconds of it and all processes below it that it waited for."""
        with self._begun(command) as process:
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, f"{command[3:5]}: {(self.folder / 'last.log').read_text()[-1000:]}"
        return used.ru_utime + used.ru_stime

    def _begun(self, command: list[str]) -> subprocess.Popen[bytes]:
        with open(self.folder / "last.log", "wb") as log:
            return subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=log, stderr=log)

    def _measured(self, readers: list[psutil.Process]) -> Night:
        files = [path for path in (self.lake / "data").rglob("*.parquet")]
        commits = sorted(self._commit_seconds())
        return {
            "files": len(files),
            "mb": sum(path.stat().st_size for path in files) / 1e6,
            "catalog_mb": (self.lake / "catalog.sqlite").stat().st_size / 1e6,
            "open_cpu_s": nights.opening(self.lake),
            "commit_p50_s": commits[len(commits) // 2],
            "commit_p99_s": commits[int(len(commits) * 0.99)],
            "reader_mb": max(reader.memory_info().rss for reader in readers) / 1e6,
        }

    def _commit_seconds(self) -> list[float]:
        """Return the CPU seconds of commits to a copy of the lake."""
        copy, seconds = self.folder / "copy", []
        shutil.copytree(self.lake, copy, ignore=shutil.ignore_patterns("*.seal", ".spill*"))
        with create_or_open(copy) as lake, lease.writing(lake, "probe", "probe") as writer:
            for n in range(PROBED_COMMITS):
                made = nights.partition(lake, "image_hash", n)
                seconds.append(timed(lambda made=made: writer.commit([made])).cpu)
                writer.begin("step")
        shutil.rmtree(copy)
        return seconds

    @contextmanager
    def readers(self, n: int = 3) -> Iterator[list[psutil.Process]]:
        """Let ``n`` processes read the lake during the body; AssertionError if one has ended by its end."""
        command = [sys.executable, "-c", READER, str(self.lake)]
        log = open(self.folder / "readers.log", "wb")  # noqa: SIM115 the readers have it
        processes = [subprocess.Popen(command, cwd=ROOT, env=environment(), stderr=log) for _ in range(n)]
        try:
            yield [psutil.Process(process.pid) for process in processes]
            ended = [process.returncode for process in processes if process.poll() is not None]
            assert not ended, (self.folder / "readers.log").read_text()[-2000:]
        finally:
            for process in processes:
                process.kill()
                process.wait()

    def faults(self, passed: list[Night]) -> list[str]:
        """Return what is not as it should be after the last night."""
        with create_or_open(self.lake, read_only=True) as lake:
            versions, documents, images, decided = lake.query(ACCOUNTED)[0]
        whole = subprocess.run(
            self.world.pairmill("check", "--deep", "--lake", str(self.lake)), cwd=ROOT, env=environment()
        )
        early, last = _median(passed[EARLY - 2 : EARLY + 1] or passed), _median(passed[-3:])
        checks = {
            f"{versions} versions in {len(passed)} nights": versions == len(passed),
            f"{documents} documents of {self.documents * len(passed)}": documents == self.documents * len(passed),
            f"{decided} decisions on {images} images": decided == images,
            "check --deep finds damage": whole.returncode == 0,
            **{
                f"{name}: {last[name]:.3g} in the last nights, {early[name]:.3g} around night {EARLY}": last[name]
                <= most * early[name]
                for name, most in BOUNDED.items()
            },
        }
        return [text for text, holds in checks.items() if not holds]


def _median(some: list[Night]) -> Night:
    """Return the median of each measure over some nights. A killed run leaves work to the next night."""
    return {name: statistics.median(night[name] for night in some) for name in some[0]}


def soak(folder: Path, count: int, documents: int, seed: int) -> tuple[list[Night], list[str]]:
    """Let the nights pass; return what was measured, and what is wrong at the end."""
    lived = Soak(folder, documents, seed)
    lived.world.pages.mkdir()
    create_or_open(lived.lake).close()
    passed: list[Night] = []
    with lived.readers() as readers:
        for number in range(count):
            passed.append(lived.pass_night(number, readers))
            print(number + 1, {name: round(value, 3) for name, value in passed[-1].items()}, flush=True)
    print(f"{lived.kills} runs were killed", flush=True)
    return passed, lived.faults(passed)


def main() -> int:
    """Soak, print the table, store it with a plot; return 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("nights", 30), ("documents", 20), ("seed", int(time.time()))):
        parser.add_argument(f"--{name}", type=int, default=default)
    options, began = parser.parse_args(), time.monotonic()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        passed, wrong = soak(Path(folder), options.nights, options.documents, options.seed)
    for line in wrong:
        print(f"not as it should be: {line}")
    print(f"{len(passed)} nights, {len(wrong)} wrong, {time.monotonic() - began:.0f} s")
    RESULTS.mkdir(exist_ok=True)
    content = {"seed": options.seed, "documents": options.documents, "wrong": wrong, "nights": passed}
    (RESULTS / "soak.json").write_text(json.dumps(content, indent=1) + "\n")
    (RESULTS / "soak.svg").write_text(plot(passed))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
