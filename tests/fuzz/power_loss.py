"""Copy a lake file by file, in random order, while a run writes it, cut the newest files short, and open each copy.

A copy opens to a state that was committed, or is refused in one line that names a file of it. Long run, from the
repository's root: ``python -m tests.fuzz.power_loss --times 300 --seed 1``.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from pairmill.catalog.lake import seal
from pairmill.catalog.lake.host import host_since_boot
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write import lease
from tests.worlds.partitions import partition

COMMITS = 12  # of each time that the writer opens the lake
CUTS = (None, None, 0, 0.5)  # what is left of a file that is cut


def write(place: str, seed: int) -> None:
    """Commit until it is stopped: a partition of two rows, and a decision on it in a transaction of its own."""
    n, chance = 0, random.Random(seed)
    while True:
        with create_or_open(place) as lake, lease.writing(lake, "run", "work") as writer:
            for _ in range(chance.randrange(1, COMMITS)):
                writer.commit([partition(lake, f"p{n}", [f"{n}a", f"{n}b"], writer.begin("step"))])
                row = f"('d', 1, '{n}', 'image', '', '', 0)"
                lake.retrying(lambda row=row: lake.execute(f"INSERT INTO decisions VALUES {row}"))
                n += 1
            print(n, flush=True)


def copied(lake: Path, to: Path, chance: random.Random) -> Path:
    """Copy the files in random order, with a little time between some; what is gone by then is left out."""
    files = [path for path in lake.rglob("*") if path.is_file()]
    chance.shuffle(files)
    for path in files:
        target = to / path.relative_to(lake)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copy2(path, target)
        except FileNotFoundError:
            continue
        if chance.random() < 0.1:
            time.sleep(chance.random() * 0.05)
    return to


def cut_short(lake: Path, chance: random.Random) -> str:
    """Cut up to two of the five newest files to nothing or to their half, as a power cut may leave them."""
    newest = sorted((path for path in lake.rglob("*") if path.is_file()), key=lambda path: -path.stat().st_mtime_ns)
    done = []
    for path in chance.sample(newest[:5], min(2, len(newest))):
        kept = chance.choice(CUTS)
        if kept is not None:
            os.truncate(path, int(path.stat().st_size * kept))
            done.append(f"{path.relative_to(lake)} cut to {kept:g}")
    return ", ".join(done) or "nothing cut"


def state(lake: Lake) -> int:
    """The number of partitions. AssertionError unless they, their rows and the decisions are of one committed state."""
    ids = [int(name[1:]) for (name,) in lake.query("SELECT partition_id FROM partitions")]
    assert sorted(ids) == list(range(len(ids))), f"partitions {sorted(ids)}"
    held = sorted(lake.query("SELECT sha256, shard FROM image_hash"))
    assert held == sorted((f"{n}{end}", f"p{n}") for n in ids for end in "ab"), f"{len(ids)} partitions, rows {held}"
    decided = sorted(int(item) for (item,) in lake.query("SELECT item_id FROM decisions"))
    assert decided == list(range(len(decided))) and len(ids) - len(decided) in (0, 1), f"{len(ids)}: {decided}"
    n = lake.query('SELECT count(*), max("commit") FROM commits')[0]
    assert n == (len(ids), len(ids) or None), f"{len(ids)} partitions, commits {n}"
    return len(ids)


def opened(place: Path, what: str) -> str:
    """Read a copy, write to it, and read it again. Returns 'right' or 'refused'; AssertionError for anything else."""
    try:
        with create_or_open(place, read_only=True) as lake:
            n = state(lake)
        with create_or_open(place) as lake, lease.writing(lake, "next", "work") as writer:
            assert state(lake) == n
            writer.commit([partition(lake, f"p{n}", [f"{n}a", f"{n}b"], writer.begin("step"), "next")])
            missing = set(range(n + 1)) - {int(item) for (item,) in lake.query("SELECT item_id FROM decisions")}
            for item in sorted(missing):
                lake.execute(f"INSERT INTO decisions VALUES ('d', 1, '{item}', 'image', '', '', 0)")
            assert state(lake) == n + 1
        with create_or_open(place, read_only=True) as lake:
            assert state(lake) == n + 1
    except PairmillError as error:
        said = str(error)
        assert "\n" not in said and str(place) in said, f"{what}: {said}"
        return f"refused: {said.replace(str(place), '').partition('(')[0][:90]}"
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
    return "right"


def run(times: int, seed: int, place: Path) -> Counter[str]:
    """Make ``times`` copies beside a writer, then open each. Returns how many were right, and how many refused."""
    lake, found = place / "lake", Counter[str]()
    create_or_open(lake).close()
    command = [sys.executable, "-m", __name__ if __spec__ is None else __spec__.name, "--write", str(lake)]
    with subprocess.Popen([*command, "--seed", str(seed)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None and writer.stdout.readline()
        copies = [copied(lake, place / str(n), random.Random(f"{seed} {n}")) for n in range(times)]
        assert writer.poll() is None
        writer.kill()
    for n, copy in enumerate(copies):
        cut = cut_short(copy, random.Random(f"{seed} {n} cut"))
        found[opened(copy, f"copy {n}, {cut}")] += 1
        shutil.rmtree(copy)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", default="", help="be the writer of this lake")
    arguments = parser.parse_args()
    if arguments.write:
        write(arguments.write, arguments.seed)
    with tempfile.TemporaryDirectory() as folder:
        half = arguments.times // 2
        print(dict(run(half, arguments.seed, Path(folder, "same boot"))))
        seal.host_since_boot = lambda: f"{host_since_boot()} again"  # as it is after a power cut
        print(dict(run(half, arguments.seed + 1, Path(folder, "next boot"))))
