"""Benchmark the catalog with the recipe `30m` at size: generated texts, work lists, re-cuts, ``why``, new pages.

Run as ``python -m infra.bench.catalog_30m [--rows N ...] [--lakes FOLDER]``, with the lakes of
:mod:`infra.bench.catalog`. Each lake is measured in a copy. First the bench runs waves until no text is lacking; it
writes synthetic texts between two measurements (:mod:`infra.bench.made_texts`). Then it times operations that read a
finished lake, in rounds. Last it adds 1 % of new pages, lists, scores and cuts them. "survey" is what
``pairmill run 30m --dry-run`` computes, without listing sources and without loading models' identities.
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
from pairmill.catalog.cut import late_cut
from pairmill.catalog.cut.cut import cut
from pairmill.catalog.cut.publication import publish
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.pending.changed_inputs import pending_similarity
from pairmill.catalog.pending.eligible import best_similarities
from pairmill.catalog.pending.worklist import (
    pending_fusion,
    pending_images,
    pending_in_wave,
    pending_sentences,
)
from pairmill.catalog.queries.datasets import find
from pairmill.catalog.queries.explain.why import resolve, scope_of
from pairmill.catalog.queries.explain.why_image import explain_image
from pairmill.catalog.queries.figures.lake_status import counts
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.terms.score import RUN_AT
from pairmill.tasks.relate.recall import SAMPLE

FIRST_LISTS, FIRST_RECUT = "work lists asked for the first time", "re-cut, the first of a process"
LIMITS = {"first facts": None, "ask for a wave's texts": None, "list a wave's captions": None,
          "list a wave's fused texts": None, "cut behind a wave": None, FIRST_LISTS: None,
          "work lists when all is done": 10.0, FIRST_RECUT: 10.0, "re-cut, another early rule": 10.0, "survey": None,
          "re-cut, another cap": 10.0, "re-cut, another late rule": 10.0, "publish": None, "why": 1.0,
          "candidates of a recall's sample": None, "work lists of 1 % of new pages": None,
          "similarities of 1 % of new pages": None, "cut of 1 % of new pages": None}  # fmt: skip
GROWTH = ("first facts", "cut behind a wave", FIRST_LISTS, "work lists when all is done", FIRST_RECUT,
          "survey", "re-cut, another cap", "publish", "why", "cut of 1 % of new pages")  # fmt: skip
Note = Callable[[str, Callable[[], object]], None]
INGESTED = ("images", "payloads", "sentences")
# Commit numbers of the rows written here. `fill` uses 1; datasets of the other recipe use the next few numbers.
WAVES, PUBLISHED, NEW = 100, 200, 300


@contextmanager
def linked(lake: Path) -> Iterator[Path]:
    """Make a copy of a lake, removed afterwards. Data files never change, so they are hard-linked."""
    folder = Path(tempfile.mkdtemp(dir=lake.parent))
    try:
        left = shutil.ignore_patterns(".facts", ".spill*", "*-wal", "*-shm")
        shutil.copytree(lake, folder / "lake", ignore=left, copy_function=_linked)
        yield folder / "lake"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _linked(source: str, target: str) -> None:
    """Hard-link a Parquet file, copy any other file."""
    os.link(source, target) if source.endswith(".parquet") else shutil.copy2(source, target)


def of_lake(folder: Path, n: int, options: argparse.Namespace) -> Notes:
    """Measure a copy of the lake of ``n`` images."""
    with opened(folder, n, options) as filled:
        path = Path(filled.uri)
    with linked(path) as copy, create_or_open(copy) as lake:
        limit(lake, options)
        note = Notes(LIMITS)
        note("first facts", lambda: cut(lake, plan_30m()))
        took = waves(lake, WAVES, note)
        note.counted.append(Row(f"waves until no text is lacking, {n} images", "waves", took, note=_kept(lake)))
        for turn in range(options.rounds):
            _round(lake, n, turn, options, note)
        new_pages(lake, n, note)
        return note


def _kept(lake: Lake) -> str:
    """Describe how many pictures got texts and how many of these are kept."""
    asked = lake.query("SELECT count(DISTINCT sha256) FROM captions")[0][0]
    kept = lake.query("SELECT count(*) FROM cut_images WHERE dropped_by = ''")[0][0]
    return f"they ask for texts of {asked:,} pictures, of which {kept:,} are kept"


def waves(lake: Lake, number: int, note: Note) -> int:
    """Request and write generated texts until none is unknown.

    Returns:
        The number of waves. Rows of the first have commit ``number + 1``, and so on.
    """
    plan, wave = plan_30m(), 0
    cut(lake, plan)
    while late_cut.count_unknown(lake):
        wave += 1
        _wave(lake, plan, wave, number, note)
        note("cut behind a wave", lambda: cut(lake, plan))
    return wave


def _wave(lake: Lake, plan: Plan, wave: int, number: int, note: Note) -> None:
    """Run one wave: request texts, list captions, write them, list fused texts, write them."""
    note("ask for a wave's texts", lambda: late_cut.select_wave(lake, plan, wave))
    print(f"wave {wave} asks for {lake.query('SELECT count(*) FROM wave_asked')[0][0]:,} pictures", flush=True)
    note("list a wave's captions", lambda: rows_of(pending_in_wave(lake, plan, "captions", plan.scorer("captions"))))
    made_texts.caption(lake, f"{number}-{wave}", number + wave)
    note("list a wave's fused texts", lambda: rows_of(pending_fusion(lake, plan)))
    made_texts.fuse(lake, f"{number}-{wave}", number + wave)


def _round(lake: Lake, n: int, turn: int, options: argparse.Namespace, note: Note) -> None:
    """Time each operation once on a finished lake."""
    if not turn:  # the bench wrote the scores: no stage has recorded that its list is finished
        note(FIRST_LISTS, lambda: work_lists(lake, plan_30m()))
    note("work lists when all is done", lambda: work_lists(lake, plan_30m()))
    note(FIRST_RECUT, lambda: _cut_elsewhere(lake, options))
    early = f"least(width, height) >= 10{turn + 1}"
    note("re-cut, another early rule", lambda: cut(lake, plan_30m(images__short_side__keep=early)))
    note("survey", lambda: _survey(lake, plan_30m()))
    note("re-cut, another cap", lambda: cut(lake, plan_30m(balance__cap=str(34 - turn))))
    late = f"synthetic_similarity between 0.51 and 0.{609 - turn}"
    note("re-cut, another late rule", lambda: cut(lake, plan_30m(images__pair_similarity__keep=late)))
    plan = plan_30m(balance__cap=str(34 - turn))
    cut(lake, plan)
    note("publish", lambda: publish(lake, plan, f"30m-{turn}", None, lambda: PUBLISHED + turn))
    one = hashlib.md5(f"o{n * (turn + 1) // (options.rounds + 1)}".encode()).hexdigest()
    note("why", lambda: _why(lake, one))
    sample = [key for (key,) in lake.query(f"SELECT sha256 FROM image_content USING SAMPLE {SAMPLE} (reservoir, 1)")]
    note("candidates of a recall's sample", lambda: best_similarities(lake, plan, sample, 3))


def _cut_elsewhere(lake: Lake, options: argparse.Namespace) -> None:
    """Cut through a second connection, which has no tables of a former cut, as in a new process."""
    with create_or_open(lake.uri) as other:
        limit(other, options)
        cut(other, plan_30m())


def _why(lake: Lake, item: str) -> None:
    """Do what `pairmill why` does for the newest dataset of `30m`."""
    found = resolve(lake, item, "")
    explain_image(lake, found.images[0], scope_of(lake, find(lake, "30m")))


def work_lists(lake: Lake, plan: Plan) -> int:
    """List the pending rows of each stage that scores; return how many there are."""
    total = 0
    for kind, pending in (("image", pending_images), ("sentence", pending_sentences)):
        for stage in RUN_AT[kind]:
            scores = [score for score in plan.scores if score.of == kind and score.stage == stage]
            # Half of the shards lack vectors; the row "work list" of infra.bench.catalog measures these.
            tables = [score.table for score in scores if score.table not in LACKING and not score.made_from]
            if tables:
                total += rows_of(pending(lake, plan, tables, stage))
    return total + rows_of(pending_similarity(lake, plan))


def _survey(lake: Lake, plan: Plan) -> None:
    """Compute what `pairmill run 30m --dry-run` shows, without sources and models."""
    counts(lake)
    work_lists(lake, plan)
    cut(lake, plan)
    if late_cut.count_unknown(lake):
        late_cut.select_wave(lake, plan, 1)


def new_pages(lake: Lake, n: int, note: Note) -> None:
    """Add 1 % of new pages; time listing and cutting them, and run their waves unmeasured."""
    last = n + max(1, n // 100)
    spans = [(at, min(last, at + SHARD)) for at in range(n, last, SHARD)]
    for first, end in spans:
        add(lake, list(INGESTED), first, end, n, "new", NEW)
    add_homes(lake, n, last, n, "new", NEW)
    note("work lists of 1 % of new pages", lambda: work_lists(lake, plan_30m()))
    scored = [table for table in TABLES if table not in (*INGESTED, "image_content", "sentence_content")]
    for first, end in spans:
        add(lake, scored, first, end, n, "new", NEW)
    note("similarities of 1 % of new pages", lambda: rows_of(pending_similarity(lake, plan_30m())))
    add_similarities(lake, NEW)
    note("cut of 1 % of new pages", lambda: cut(lake, plan_30m()))
    waves(lake, NEW, unmeasured)


def unmeasured(name: str, work: Callable[[], object]) -> None:
    """Run ``work`` without timing it; another row measures the same operation."""
    work()


def rows_of(rounds: Iterable[list]) -> int:
    """Read all rounds of work items; return the number of their rows."""
    return sum(len(item.keys) for items in rounds for item in items)


def main() -> None:
    """Run the bench and write its result."""
    run("catalog_30m", of_lake, GROWTH, parser(__doc__))


if __name__ == "__main__":
    main()
