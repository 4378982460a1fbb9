"""Benchmark the catalog at size: work list, re-cut, publish, version diff, funnel and ``why``, on synthetic metadata.

Run as ``python -m infra.bench.catalog [--rows N ...] [--lakes FOLDER]``. For each number of images, the bench fills a
lake (:mod:`infra.bench.made_lake`) under ``--lakes``, where it is kept and reused, or in a folder that is removed. The
first cut joins the facts; it takes minutes and runs once. The cuts of the rounds, each with another cap, reuse these
facts: the figure "re-cut". Each publish adds a version. :mod:`infra.bench.catalog_30m` measures the recipe `30m` with
its generated texts, :mod:`infra.bench.commits` measures commits.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from infra.bench.made_lake import fill, plan
from infra.bench.measure import Row, Seconds, cpu, exponent, finish, parser, peak_mb, timed, wall
from pairmill.catalog.cut.cut import cut
from pairmill.catalog.cut.publication import publish
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.pending.worklist import pending_images
from pairmill.catalog.queries.compare.version_diff import differences
from pairmill.catalog.queries.datasets import find, funnel
from pairmill.catalog.queries.explain.why import resolve, scope_of
from pairmill.catalog.queries.explain.why_image import explain_image
from pairmill.catalog.terms.score import Stage

LIMITS = {"work list": 10.0, "work list when all is done": 10.0, "first cut": None, "re-cut": 10.0,
          "publish": None, "what differs between two versions": None, "funnel": 1.0, "why": 1.0}  # fmt: skip


GROWTH = ("work list", "first cut", "re-cut", "publish", "why")
OfLake = Callable[[Path, int, argparse.Namespace], "Notes"]


class Notes:
    """Collect the seconds of each named operation, the first run on an empty lake included.

    ``limits`` are the targets in wall seconds at 10M images; None means no target.
    """

    def __init__(self, limits: Mapping[str, float | None]) -> None:
        self.limits = limits
        self.seconds: dict[str, list[Seconds]] = {}
        self.counted: list[Row] = []

    def __call__(self, name: str, work: Callable[[], object]) -> None:
        """Time ``work`` once and record its seconds under ``name``."""
        self.seconds.setdefault(name, []).append(took := timed(work))
        print(f"{name}: {took.wall:.2f} s wall, {took.cpu:.2f} s CPU, peak {peak_mb():.0f} MB", flush=True)

    def row(self, name: str, rows: int) -> Row:
        """Return the result row of one operation, measured on a lake of ``rows`` images."""
        found, most = self.seconds[name], self.limits[name]
        met = wall(found) <= most if most is not None and rows >= 10_000_000 else None
        target = "" if most is None else f"<= {most:g} s at 10M images"
        note = f"{cpu(found):.3g} CPU s" + (", one round" if len(found) == 1 else "")
        return Row(f"{name}, {rows} images", "wall s", wall(found), note=note, target=target, met=met)


def measured(lake: Lake, n: int, rounds: int) -> Notes:
    """Time every operation on a lake of ``n`` images, ``rounds`` times."""
    note, capped = Notes(LIMITS), 34
    lake.execute("DETACH DATABASE IF EXISTS facts")
    shutil.rmtree(Path(lake.uri) / ".facts", ignore_errors=True)
    note("first cut", lambda: cut(lake, plan()))
    for turn in range(rounds):
        made = plan(capped - turn)
        note("work list", lambda: list(pending_images(lake, plan(), ("image_embedding",), Stage.CLIP)))
        note("work list when all is done", lambda: list(pending_images(lake, plan(), ("image_quality",), Stage.PIXELS)))
        note("re-cut", lambda made=made: cut(lake, made))
        note("publish", lambda made=made, turn=turn: publish(lake, made, f"run{turn}", None, lambda: turn + 2))
        dataset = find(lake, "big")
        if dataset.version > 1:
            before = find(lake, f"big@{dataset.version - 1}")
            note("what differs between two versions", lambda a=before, b=dataset: differences(lake, a, b, 0))
        note("funnel", lambda dataset=dataset: funnel(lake, dataset))
        one = hashlib.md5(f"o{n * (turn + 1) // (rounds + 1)}".encode()).hexdigest()
        note("why", lambda one=one: _why(lake, one))
    return note


def _why(lake: Lake, item: str) -> None:
    """Do what `pairmill why` does: resolve the item, then explain it for the newest version."""
    found = resolve(lake, item, "")
    explain_image(lake, found.images[0], scope_of(lake, find(lake, "big")))


def growth(notes: dict[int, Notes], names: Sequence[str]) -> list[Row]:
    """Fit an exponent to the CPU seconds over the lake sizes, and extrapolate them to 30M images."""
    rows = []
    for name in names:
        sizes = sorted(notes)
        seconds = [cpu(notes[n].seconds[name]) for n in sizes]
        e = exponent(sizes, seconds)
        note = f"from {sizes[0]} to {sizes[-1]} images; by it {seconds[-1] * (30e6 / sizes[-1]) ** e:.3g} CPU s at 30M"
        rows.append(Row(f"growth of {name}", "exponent", e, note=note))
    return rows


@contextmanager
def opened(folder: Path, n: int, options: argparse.Namespace) -> Iterator[Lake]:
    """Open the lake of ``n`` images; fill it if it is empty."""
    with create_or_open(folder / f"lake-{n}") as lake:
        limit(lake, options)
        if not lake.query("SELECT 1 FROM images LIMIT 1"):
            print(f"{n} images filled in {timed(lambda: fill(lake, n)).wall:.0f} s", flush=True)
        elif not lake.query("SELECT 1 FROM perplexity LIMIT 1"):
            raise SystemExit(f"{lake.uri} was filled without the scores of 30m: remove it, or name another folder.")
        yield lake


def limit(lake: Lake, options: argparse.Namespace) -> None:
    """Set DuckDB's memory limit and number of threads."""
    lake.execute(f"SET memory_limit = '{options.memory}'; SET threads = {options.threads}")


def of_lake(folder: Path, n: int, options: argparse.Namespace) -> Notes:
    """Open the lake of ``n`` images and time every operation on it."""
    with opened(folder, n, options) as lake:
        return measured(lake, n, options.rounds)


def run(name: str, of_lake: OfLake, growing: Sequence[str], options: argparse.ArgumentParser) -> None:
    """Measure lakes of the requested sizes, and write the result: rows of the largest lake, and growth over sizes."""
    options.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000], help="images of each lake")
    options.add_argument("--memory", default="2.6GB", help="what DuckDB may hold before it spills")
    options.add_argument("--threads", type=int, default=2, help="threads of DuckDB")
    options.add_argument("--lakes", type=Path, help="folder of lakes to fill, or that were filled before")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        notes = {n: of_lake(given.lakes or Path(folder), n, given) for n in sorted(given.rows)}
    most = max(notes)
    rows = [notes[most].row(each, most) for each in notes[most].limits if each in notes[most].seconds]
    peak = peak_mb()
    rows += notes[most].counted
    rows.append(Row("memory of all of these", "MB", peak, target="<= 4,000 MB", met=peak <= 4000))
    finish(name, rows + (growth(notes, growing) if len(notes) > 1 else []), given)


def main() -> None:
    """Run the bench and write its result."""
    run("catalog", of_lake, GROWTH, parser(__doc__))


if __name__ == "__main__":
    main()
