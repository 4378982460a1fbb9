"""One run's hold on a lake: its plan, its place to work, its writer. Every step takes one and nothing else."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from catalog.lake.lake import Lake
from catalog.pending.item import WorkItem
from catalog.recipe.plan import Plan
from catalog.recipe.recipe import Recipe
from catalog.write.commit import Manifest
from catalog.write.lease import Writer
from catalog.write.scorer import Scorer, register
from catalog.write.stream import commit_stream
from tasks.run import stage
from tasks.run.stage import Job, Output, Part, Placement


def _silent(step: str, done: int, total: int) -> None:
    return None


@dataclass
class Session:
    """Held by the flow process, the only one that talks to the catalog, for the time of the lease.

    ``allow_addresses`` are networks (CIDR) that a fetch may contact although they are not public.
    ``progress(step, done, total)`` is called after each finished work item. Results are committed every
    ``commit_files`` files, or after 5 s: a commit costs some 50 ms, so a crash redoes seconds of work at most.
    """

    writer: Writer
    plan: Plan
    placement: Placement
    sources: tuple[str, ...] = ()
    progress: Callable[[str, int, int], None] = _silent
    commit_files: int = 200
    allow_addresses: tuple[str, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _unregistered: list[Scorer] = field(default_factory=list)

    @property
    def lake(self) -> Lake:
        return self.writer.lake

    @property
    def recipe(self) -> Recipe:
        return self.plan.recipe

    def use(self, table: str, scorer: Scorer) -> str:
        """From here on ``table`` is read by this scorer's digest; the scorer is on record before its first row."""
        self.plan = self.plan.with_scorer(table, scorer.digest)
        self._unregistered.append(scorer)
        return scorer.digest

    def register_later(self, scorers: Sequence[Scorer]) -> None:
        """Put these on record with the next step that has work."""
        self._unregistered += scorers

    def note(self, text: str) -> None:
        """Something a person should know about this run; shown when it ends."""
        self.notes.append(text)

    def begin(self, step: str) -> Output:
        """Take a commit number for ``step``: only when there is work, so that an idle run changes nothing."""
        commit = self.writer.begin(step)
        register(self.lake, self._unregistered, commit)
        self._unregistered.clear()
        return Output(self.lake.data_path, self.writer.run_id, commit)

    def work(self, step: str, items: Sequence[WorkItem], job: Job) -> int:
        """Run ``job`` over ``items`` and commit what comes, every few seconds. Returns the number of items."""
        self.counts[step] = self.counts.get(step, 0) + len(items)
        if items:
            output = self.begin(step)
            commit_stream(self.writer, self._run_with_progress(step, items, job, output), self.commit_files)
        return len(items)

    def work_rounds(self, step: str, rounds: Iterable[Sequence[WorkItem]], job: Job) -> None:
        """The same for a work list that comes in rounds; the next is asked for when the one before is committed."""
        for items in rounds:
            self.work(step, items, job)

    def _run_with_progress(
        self, step: str, items: Sequence[WorkItem], job: Job, output: Output
    ) -> Iterator[list[Manifest]]:
        self.progress(step, 0, len(items))
        for done, manifests in enumerate(stage.run(items, job, output, self.placement), 1):
            yield manifests
            self.progress(step, done, len(items))

    def store(self, step: str, item: WorkItem, parts: Sequence[Part]) -> None:
        """Commit rows that were made in this process: the results of global steps."""
        self.counts[step] = self.counts.get(step, 0) + 1
        output = self.begin(step)
        commit_stream(self.writer, [stage.write_parts(parts, item, output)])
