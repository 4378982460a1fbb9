"""The catalog with the recipe `30m` at size: waves of generated texts, work lists, re-cuts, ``why``, new pages.

Run as ``python -m infra.bench.catalog_30m [--rows N ...] [--lakes FOLDER]``, with the lakes of
:mod:`infra.bench.catalog`; each is measured in a copy. Its waves are asked for until no text is lacking; texts are made
up between two measurements (:mod:`infra.bench.made_texts`). Then come rounds of what reads a finished lake, then 1 % of
new pages, listed, scored and cut. A survey asks what ``pairmill status 30m`` does, but for what a source lists and what
models say of themselves.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.bench import made_texts
from infra.bench.catalog import Notes, limit, opened, run
from infra.bench.made_lake import LACKING, SHARD, add, add_homes, add_similarities, plan_30m
from infra.bench.made_tables import TABLES
from infra.bench.measure import Row, parser
from pairmill.catalog.ask.datasets import find
from pairmill.catalog.ask.holdings import counts
from pairmill.catalog.ask.why import resolve, scope_of
from pairmill.catalog.ask.why_image import explain_image
from pairmill.catalog.cut import wanted
from pairmill.catalog.cut.cut import cut
from pairmill.catalog.cut.publication import publish
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.pending.pending_texts import pending_fusion, pending_in_wave, pending_similarity
from pairmill.catalog.pending.worklist import pending_images, pending_sentences
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.terms.score import RUN_AT

LIMITS = {"first facts": None, "ask for a wave's texts": None, "list a wave's captions": None,
          "list a wave's fused texts": None, "cut behind a wave": None, "work lists when all is done": 10.0,
          "survey": None, "re-cut, another cap": 10.0, "re-cut, another late rule": 10.0, "publish": None, "why": 1.0,
          "work lists of 1 % of new pages": None, "cut of 1 % of new pages": None}  # fmt: skip
GROWTH = ("first facts", "cut behind a wave", "work lists when all is done", "survey", "re-cut, another cap",
          "publish", "why", "cut of 1 % of new pages")  # fmt: skip
Note = Callable[[str, Callable[[], object]], None]
INGESTED = ("images", "payloads", "sentences")
# Commit numbers: what `fill` writes has 1, datasets of the other recipe a few above it.
WAVES, PUBLISHED, NEW = 100, 200, 300


@contextmanager
def linked(lake: Path) -> Iterator[Path]:
    """Make a copy of a lake that is removed afterwards. Data files never change, so they are linked."""
    folder = Path(tempfile.mkdtemp(dir=lake.parent))
    try:
        left = shutil.ignore_patterns(".facts", ".spill*", "*-wal", "*-shm")
        shutil.copytree(lake, folder / "lake", ignore=left, copy_function=_linked)
        yield folder / "lake"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _linked(source: str, target: str) -> None:
    os.link(source, target) if source.endswith(".parquet") else shutil.copy2(source, target)


def of_lake(folder: Path, n: int, options: argparse.Namespace) -> Notes:
    with opened(folder, n, options) as filled:
        path = Path(filled.uri)
    with linked(path) as copy, create_or_open(copy) as lake:
        limit(lake, options)
        note = Notes(LIMITS)
        note("first facts", lambda: cut(lake, plan_30m()))
        took = waves(lake, WAVES, note)
        note.counted.append(Row(f"waves until no text is lacking, {n} images", "waves", took, note=_kept(lake)))
        for turn in range(options.rounds):
            _round(lake, n, turn, options.rounds, note)
        new_pages(lake, n, note)
        return note


def _kept(lake: Lake) -> str:
    asked = lake.query("SELECT count(DISTINCT sha256) FROM captions")[0][0]
    kept = lake.query("SELECT count(*) FROM cut_images WHERE dropped_by = ''")[0][0]
    return f"they ask for texts of {asked:,} pictures, of which {kept:,} are kept"


def waves(lake: Lake, number: int, note: Note) -> int:
    """Ask and answer until nothing is unknown. Returns how many waves it took; their rows are of commit ``number``."""
    plan, wave = plan_30m(), 0
    cap = cut(lake, plan)
    while wanted.unknown(lake):
        wave += 1
        _wave(lake, plan, cap, wave, number, note)
        note("cut behind a wave", lambda: cut(lake, plan))
    return wave


def _wave(lake: Lake, plan: Plan, cap: int, wave: int, number: int, note: Note) -> None:
    note("ask for a wave's texts", lambda: wanted.select_wave(lake, plan, cap, wave))
    print(f"wave {wave} asks for {lake.query('SELECT count(*) FROM wave_asked')[0][0]:,} pictures", flush=True)
    note("list a wave's captions", lambda: rows_of(pending_in_wave(lake, plan, "captions", plan.scorer("captions"))))
    made_texts.caption(lake, f"{number}-{wave}", number)
    note("list a wave's fused texts", lambda: rows_of(pending_fusion(lake, plan)))
    made_texts.fuse(lake, f"{number}-{wave}", number)


def _round(lake: Lake, n: int, turn: int, rounds: int, note: Note) -> None:
    note("work lists when all is done", lambda: work_lists(lake, plan_30m()))
    note("survey", lambda: _survey(lake, plan_30m()))
    note("re-cut, another cap", lambda: cut(lake, plan_30m(balance__cap=str(34 - turn))))
    late = f"synthetic_similarity between 0.51 and 0.{609 - turn}"
    note("re-cut, another late rule", lambda: cut(lake, plan_30m(images__pair_similarity__keep=late)))
    plan = plan_30m(balance__cap=str(34 - turn))
    cut(lake, plan)
    note("publish", lambda: publish(lake, plan, f"30m-{turn}", None, lambda: PUBLISHED + turn))
    one = hashlib.md5(f"o{n * (turn + 1) // (rounds + 1)}".encode()).hexdigest()
    note("why", lambda: _why(lake, one))


def _why(lake: Lake, item: str) -> None:
    found = resolve(lake, item, "")
    explain_image(lake, found.images[0], scope_of(lake, find(lake, "30m")))


def work_lists(lake: Lake, plan: Plan) -> int:
    """List what each stage that scores is to do. Returns the rows."""
    total = 0
    for kind, pending in (("image", pending_images), ("sentence", pending_sentences)):
        for stage in RUN_AT[kind]:
            scores = [score for score in plan.scores if score.of == kind and score.stage == stage]
            # Half of the shards lack vectors: catalog's row "work list" is of these.
            tables = [score.table for score in scores if score.table not in LACKING and not score.made_from]
            if tables:
                total += rows_of(pending(lake, plan, tables, stage))
    return total


def _survey(lake: Lake, plan: Plan) -> None:
    counts(lake)
    work_lists(lake, plan)
    rows_of(pending_similarity(lake, plan))
    cap = cut(lake, plan)
    if wanted.unknown(lake):
        wanted.select_wave(lake, plan, cap, 1)


def new_pages(lake: Lake, n: int, note: Note) -> None:
    """Add 1 % of new pages; list, score and cut them."""
    last = n + max(1, n // 100)
    spans = [(at, min(last, at + SHARD)) for at in range(n, last, SHARD)]
    for first, end in spans:
        add(lake, list(INGESTED), first, end, n, "new", NEW)
    add_homes(lake, n, last, n, "new", NEW)
    note("work lists of 1 % of new pages", lambda: work_lists(lake, plan_30m()))
    scored = [table for table in TABLES if table not in (*INGESTED, "image_content", "sentence_content")]
    for first, end in spans:
        add(lake, scored, first, end, n, "new", NEW)
    add_similarities(lake, NEW)
    note("cut of 1 % of new pages", lambda: cut(lake, plan_30m()))
    waves(lake, NEW, unmeasured)


def unmeasured(name: str, work: Callable[[], object]) -> None:
    """Do what has been measured elsewhere."""
    work()


def rows_of(rounds: Iterable[list]) -> int:
    """Read all rounds of work items. Returns the rows in them."""
    return sum(len(item.keys) for items in rounds for item in items)


def main() -> None:
    run("catalog_30m", of_lake, GROWTH, parser(__doc__))


if __name__ == "__main__":
    main()
