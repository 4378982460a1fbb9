"""Run the whole pipeline in this process, as ``pairmill run`` does, and query the lake.

As a script it is a run that is killed: ``python tests/worlds/line.py LAKE SOURCE STEP [key=value …]`` kills itself
(SIGKILL) after the second commit of STEP. STEP@2:1 means after the first commit of the second time that the step has
work.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import duckdb

from infra.bench.counted import Counts, count_duckdb
from pairmill.catalog.cut.publication import Published
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.recipe.plan import Plan
from pairmill.flows.curate import curate_steps, text_steps
from pairmill.flows.run.outcome import outcome_in
from pairmill.flows.run.run_start import session
from pairmill.flows.run.settings import Compute, load_recipe
from pairmill.tasks.run.place.placement import SmallRounds
from pairmill.tasks.run.place.progress import Progress, ShowProgress, not_shown
from pairmill.tasks.run.session import Session
from tests.worlds.generated import pages, small_settings
from tests.worlds.shared import made_once, new_lake

Result = TypeVar("Result")

SCORES = {
    "image_quality": "sha256",
    "image_hash": "sha256",
    "image_embedding": "sha256",
    "sentence_quality": "content",
    "corpus_entropy": "content",
    "sentence_structure": "content",
    "perplexity": "content",
    "sentence_signature": "content",
    "sentence_embedding": "content",
    "clusters": "key",
    "captions": "sha256",
    "tags": "sha256",
}


def curate(
    lake: Path | str,
    *sources: Path | str,
    recipe: str = "demo",
    settings: dict[str, str] | None = None,
    progress: ShowProgress = not_shown,
    workers: int = 2,
    ray_address: str = "",
    small_rounds: SmallRounds = "ray",
    commit_files: int = 200,
) -> tuple[Published, dict[str, int]]:
    """Run once; return the published version and the number of work items by step.

    A version without a pair is published too. ``commit_files`` 1 commits each item, for a run that is killed between
    two items; it takes twice as long.
    """
    read = load_recipe(recipe, settings)
    asked = {"workers": workers, "ray_address": ray_address, "small_rounds": small_rounds, "allow_empty": True}
    compute = Compute.model_validate(asked)
    with session(
        read,
        [str(source) for source in sources],
        str(new_lake(lake)),
        compute,
    ) as opened:
        opened.progress, opened.commit_files = progress, commit_files
        published = curate_steps(opened, lambda step, held: step(held))
        return published, dict(opened.counts)


def run_part(
    lake: Path | str,
    part: Callable[[Session], Result],
    settings: dict[str, str] | None = None,
    recipe: str = "demo",
    **compute: Any,
) -> tuple[Result, dict[str, int]]:
    """Run one step, or a function of several, in a session on a lake that earlier steps have filled.

    Returns the result of ``part`` and the number of work items by step. All steps take 3 CPU s to find out that they
    have no work, so a test of one step names that step: ``run_part(lake, cluster_survivors, settings)``. The plan reads
    the newest rows of each step that is left out; their settings are to be those of the run that made the rows.
    """
    chosen = Compute.model_validate({"workers": 2, "allow_empty": True} | compute)
    with session(load_recipe(recipe, settings), [], str(lake), chosen, needs_source=False) as opened:
        opened.plan = with_newest(opened.plan, opened.lake)
        return part(opened), dict(opened.counts)


def with_newest(plan: Plan, lake: Lake) -> Plan:
    """Return the plan as it is after all measuring steps: it reads the newest rows of each scorer that it lacks."""
    for name, digest in lake.query('SELECT name, max_by(digest, "commit") FROM scorers GROUP BY name'):
        if not plan.scorer(name):
            plan = plan.with_scorer(name, digest)
    return plan


def texts(opened: Session) -> Published:
    """Generate the missing texts and publish: the part of a run that follows measuring."""
    return text_steps(opened, lambda step, held: step(held))


def curated_lake() -> Path:
    """Return a lake with one finished run over the small world and its report. Read it, or change a copy.

    It is made once a test run. Without the report each copy would write one when asked for its outcome, for 2 CPU s.
    """
    return _curated() / "lake"


def first_run_counts() -> dict[str, int]:
    """Return the statements (``duckdb``, ``metadata``) and ``commits`` of the run that made `curated_lake`."""
    return json.loads((_curated() / "counts.json").read_text())


def _curated() -> Path:
    def make(place: Path) -> None:
        with counting() as counts:
            curate(place / "lake", pages(), settings=small_settings())
            with create_or_open(place / "lake", read_only=True) as lake:
                outcome_in(lake, "demo")
        (place / "counts.json").write_text(json.dumps({**counts.statements, "commits": counts.commits}))

    return made_once("curated", make)


@contextmanager
def counting() -> Iterator[Counts]:
    """Count the DuckDB statements and commits of this process in the body."""
    connect, counts = duckdb.connect, Counts()
    try:
        count_duckdb(counts)
        yield counts
    finally:
        duckdb.connect = connect


def snapshot(lake: Path) -> tuple:
    """Return what must be equal between lakes: the dataset, and how many rows each table has."""
    counts = rows(lake, 'SELECT "table", sum(rows) FROM partitions GROUP BY "table" ORDER BY "table"')
    return rows(lake, "SELECT content_digest, version FROM datasets"), counts


def work_done(counts: dict[str, int]) -> dict[str, int]:
    """Return the steps that had work."""
    return {step: n for step, n in counts.items() if n}


def rows(lake: Path | str, sql: str) -> list[tuple]:
    """Query a lake."""
    with create_or_open(lake, read_only=True) as opened:
        return opened.query(sql)


def scored_twice(lake: Path | str) -> list[tuple]:
    """List every (table, scorer, key) with more than one row; several probes of one vector do not count."""
    return [
        (table, *row)
        for table, key in SCORES.items()
        for row in rows(lake, f"SELECT scorer, {key}, count(*) FROM {table} GROUP BY ALL HAVING count(*) > 1")
    ]


class Stopped(BaseException):
    """Raised to end a run in this process at the point where a kill would end a process."""


def stopped(lake: Path, pages: Path, step: str, settings: dict[str, str], *more: Path) -> None:
    """Run a curation of ``pages`` and ``more`` sources that raises after the second commit of ``step``.

    The lake then has the same rows as after a kill by ``python -m tests.worlds.line``. The workers survive, so it costs
    a third of a kill.
    """

    def stop() -> None:
        raise Stopped(step)

    try:
        curate(lake, pages, *more, settings=settings, progress=ending_in(step, stop), commit_files=1)
    except Stopped:
        return
    raise AssertionError(f"{step} came to its end")


def ending_in(victim: str, end: Callable[[], None]) -> ShowProgress:
    """Return a progress callback that calls ``end`` after the second commit of a step.

    STEP@2:1 means after the first commit of the second time that the step has work.
    """
    name, _, when = victim.partition("@")
    time, last = (int(part) for part in when.split(":")) if when else (1, 2)
    begun = 0

    def progress(at: Progress) -> None:
        nonlocal begun
        begun += at.step == name and at.is_begin
        if at.step == name and begun == time and at.items == last:
            assert when or at.of_items > 2, f"{name} has {at.of_items} items"
            end()

    return progress


def kill() -> None:
    """Kill this process (SIGKILL)."""
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    lake, source, step, *rest = sys.argv[1:]
    curate(
        lake, source, settings=dict(each.split("=", 1) for each in rest), progress=ending_in(step, kill), commit_files=1
    )
