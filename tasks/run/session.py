"""Hold the state of one run: its plan, its placement, its writer and its progress. Every step takes a session alone."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.write.commit import Manifest
from pairmill.catalog.write.lease import Writer
from pairmill.catalog.write.scorer import Scorer
from pairmill.catalog.write.stream import commit_stream
from pairmill.tasks.run.budget import Budget
from pairmill.tasks.run.partition import Job, Output, Part, write_parts
from pairmill.tasks.run.placement import Placement
from pairmill.tasks.run.stage import Stage


def _no_progress(step: str, done: int, total: int) -> None:
    return None


def _waiting_not_shown(step: str, text: str) -> None:
    return None


@dataclass
class Session:
    """One run, in the flow process (the only one that talks to the catalog), for as long as its lease.

    ``allow_addresses`` are networks (CIDR) that a fetch may contact although they are not public.
    ``progress(step, done, total)`` is called after each finished work item, for the last one when all are committed;
    ``waiting(step, text)`` when a step waits for a machine of a cluster, and with '' when it does no longer.
    Results are committed every ``commit_files`` files, or after 5 s: a commit costs some 50 ms, so a crash redoes
    seconds of work at most. ``told_once`` are those of the ``notes`` that tell what this run did. ``waves`` counts how
    often generated texts were asked for, ``budget`` what they cost.
    """

    writer: Writer
    plan: Plan
    placement: Placement
    sources: tuple[str, ...] = ()
    progress: Callable[[str, int, int], None] = _no_progress
    waiting: Callable[[str, str], None] = _waiting_not_shown
    commit_files: int = 200
    allow_addresses: tuple[str, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    waves: int = 0
    notes: list[str] = field(default_factory=list)
    told_once: set[str] = field(default_factory=set)
    budget: Budget = field(default_factory=Budget)
    _unregistered: list[Scorer] = field(default_factory=list)

    @property
    def lake(self) -> Lake:
        return self.writer.lake

    @property
    def recipe(self) -> Recipe:
        return self.plan.recipe

    def use(self, table: str, scorer: Scorer) -> str:
        """Have the plan read ``table`` by this scorer, and register it with the next commit. Returns its digest."""
        self.plan = self.plan.with_scorer(table, scorer.digest)
        self._unregistered.append(scorer)
        return scorer.digest

    def register_later(self, scorers: Sequence[Scorer]) -> None:
        """Register these scorers with the next step that has work."""
        self._unregistered += scorers

    def note(self, text: str, once: bool = False) -> None:
        """Add a message that is shown when the run ends; ``once`` of what this run did and the next will not."""
        if text not in self.notes:
            self.notes.append(text)
        if once:
            self.told_once.add(text)

    @property
    def lasting_notes(self) -> tuple[str, ...]:
        """What a run that finds nothing to do says again."""
        return tuple(note for note in self.notes if note not in self.told_once)

    def begin(self, step: str) -> Output:
        """Allocate a commit number for ``step``, which takes the scorers that wait; call it only when there is work.

        Raises LeaseLost when another process took the lease over.
        """
        commit = self.writer.begin(step, self._unregistered)
        self._unregistered.clear()
        return Output(self.lake.data_path, self.writer.run_id, commit)

    def work(self, step: str, items: Sequence[WorkItem], job: Job, most_workers: int = 0) -> int:
        """Run ``job`` over ``items``, commit results every few seconds, return the number of items.

        With no more than ``most_workers`` at once, unless that is 0. Raises what `Stage.run` raises, and LeaseLost.
        """
        placement = replace(self.placement, workers=most_workers) if most_workers else self.placement
        with Stage(job, placement, partial(self._show_waiting, step)) as stage:
            return self.work_round(step, items, stage)

    def work_rounds(self, step: str, rounds: Iterable[Sequence[WorkItem]], job: Job) -> None:
        """Run ``job`` over each round of a work list; a round is queried when the one before it is committed.

        Raises PairmillError when the run may spend no more.
        """
        prices = self.placement.pool_of(getattr(job, "model", "")).prices
        with Stage(job, self.placement, partial(self._show_waiting, step)) as stage:
            for items in rounds:
                for portion in self.budget.affordable(step, items, prices):
                    self.work_round(step, portion, stage)

    def work_round(self, step: str, items: Sequence[WorkItem], stage: Stage) -> int:
        """Run a stage over a round of items and commit what comes of them; return the number of items."""
        items = stage.sized(items)
        self.counts[step] = self.counts.get(step, 0) + len(items)
        if items:
            output = self.begin(step)
            commit_stream(self.writer, self._run_with_progress(step, items, stage, output), self.commit_files)
            self.progress(step, len(items), len(items))
        return len(items)

    def compute(self, step: str, rows: int, run: Callable[[], Any], items: int = 1) -> bool:
        """Do a global step over ``rows``, if there are any. Returns whether it is done: a survey only notes it."""
        if rows:
            run()
        return True

    def follow(self, run: Callable[[], Any]) -> None:
        """Do what follows from work that was done; a survey, which does none, leaves it."""
        run()

    def is_due(self, *steps: str) -> bool:
        """Whether any of these is still to be done: in a run each is, by then; a survey knows what it noted."""
        return False

    def _run_with_progress(
        self, step: str, items: Sequence[WorkItem], stage: Stage, output: Output
    ) -> Iterator[list[Manifest]]:
        self.progress(step, 0, len(items))
        prices = self.placement.pool_of(stage.model).prices
        for done, manifests in enumerate(stage.run(items, output), 1):
            yield self.budget.priced(step, manifests, prices)
            if done < len(items):  # of the last one it is said when all are committed
                self.progress(step, done, len(items))

    def _show_waiting(self, step: str, text: str) -> None:
        """Show what ``step`` waits for to who reads the lake, and to who watches this run."""
        self.writer.show_waiting(f"{step}: {text}" if text else "")
        self.waiting(step, text)

    def store(self, step: str, item: WorkItem, parts: Iterable[Part]) -> None:
        """Commit rows that were made in this process: the results of global steps. Raises LeaseLost.

        Parts are written as they come, so that what is stored may be larger than memory.
        """
        self.counts[step] = self.counts.get(step, 0) + 1
        output = self.begin(step)
        commit_stream(self.writer, [write_parts(parts, item, output)])
