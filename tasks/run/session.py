"""Hold the state of one run (plan, placement, writer, progress); every step takes a session as its only argument."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.recipe.recipe import Recipe, refuse_other_scorers
from pairmill.catalog.write import runs
from pairmill.catalog.write.commit import Manifest
from pairmill.catalog.write.lease import Writer, commit_stream
from pairmill.catalog.write.scorer import Scorer
from pairmill.tasks.run.cluster.on_ray import Fleets
from pairmill.tasks.run.items.partition import Job, Output, Part, write_parts
from pairmill.tasks.run.place.placement import Placement
from pairmill.tasks.run.place.progress import Observer, Progress, RowCount, ShowProgress, not_shown
from pairmill.tasks.run.place.run_limits import Budget, Spending
from pairmill.tasks.run.pool.process import LOG
from pairmill.tasks.run.stage import JobStage

if TYPE_CHECKING:  # the readers of all formats, 0.3 s
    from pairmill.ops.read.source import Source


@dataclass
class Session:
    """The state of one run, while it holds the lease. It lives in the flow process, which alone writes to the catalog.

    Results are committed every ``commit_files`` files, or after 5 s. A commit costs some 50 ms, and a crash redoes
    seconds of work at most.
    """

    writer: Writer
    plan: Plan
    placement: Placement
    sources: tuple[str, ...] = ()
    # called at the start of each round and after each finished item; for the last item of a round after the commit
    progress: ShowProgress = not_shown
    # called as ``waiting(step, text)`` when a step waits for a machine of a cluster, with '' when the wait ends
    waiting: Callable[[str, str], None] = lambda step, text: None
    commit_files: int = 200
    allow_addresses: tuple[str, ...] = ()  # networks (CIDR) that a fetch may contact although they are not public
    is_measured: bool = False  # whether a run over the same rows and inputs has done all that the current step measures
    recall: float | None = None  # the recall that such a run measured and published, None if it published nothing
    allow_empty: bool = False  # whether a version without a pair is published
    counts: dict[str, int] = field(default_factory=dict)  # number of work items by step
    # number of rows by (step, unit), such as 'pictures'
    rows: Counter[tuple[str, str]] = field(default_factory=Counter)
    waves: int = 0  # number of waves of generated texts that were requested so far
    # whether the first wave requests few captions, for people to look at before the others cost money
    shows_first: bool = False
    cut: Plan | None = None  # the plan of the cut after which no text was unknown; None before
    notes: list[str] = field(default_factory=list)  # messages that are shown when the run ends
    # the notes about this run's own work, which an idle run does not repeat
    told_once: set[str] = field(default_factory=set)
    # rules whose threshold canaries could not set in this run; to try takes a pass over sentences
    unmeasured: set[str] = field(default_factory=set)
    # number of quarantined items at the start, by the reason for which this run retries them
    retried: dict[str, int] = field(default_factory=dict)
    budget: Budget = field(default_factory=Budget)  # the cost of generated texts
    spending: Spending = field(default_factory=Spending)  # the hours, rows and bytes of the run, with their limits
    demo_weights: tuple[str, ...] = ()  # the small shipped models that the run uses
    # returns the part of a source that the run reads; all of it but in a preflight
    sampled: Callable[["Source"], "Source"] = lambda source: source
    # idle workers on a Ray cluster from earlier steps, with their models loaded
    fleets: Fleets = field(default_factory=partial(Fleets, keeps=True))
    _unregistered: list[Scorer] = field(default_factory=list)
    _observers: list[Observer] = field(default_factory=list)

    @property
    def lake(self) -> Lake:
        """The lake that the run writes to."""
        return self.writer.lake

    @property
    def recipe(self) -> Recipe:
        """The recipe of the plan."""
        return self.plan.recipe

    def use(self, table: str, scorer: Scorer) -> str:
        """Restrict the plan to this scorer's rows of ``table``; return the scorer's digest.

        The scorer is registered with the next commit. Raises BadRecipe if a rule's threshold was calibrated on another
        scorer of this name.
        """
        refuse_other_scorers(self.recipe, {scorer.name: scorer.digest})
        self.plan = self.plan.with_scorer(table, scorer.digest)
        self._unregistered.append(scorer)
        return scorer.digest

    def register_later(self, scorers: Sequence[Scorer]) -> None:
        """Register these scorers with the next commit."""
        self._unregistered += scorers

    def note(self, *texts: str, once: bool = False) -> None:
        """Add messages to show when the run ends; ``once``: later runs without work must not repeat them."""
        self.notes += [text for text in dict.fromkeys(texts) if text not in self.notes]
        if once:
            self.told_once.update(texts)

    def tell(self, text: str) -> None:
        """Show a worker's message: in the log at once, in the run's row for `status`, and in the notes at the end."""
        if text not in self.notes:
            LOG.warning("%s", text)
            self.note(text, once=True)
            runs.add_note(self.lake, self.writer.run_id, text)

    @property
    def lasting_notes(self) -> tuple[str, ...]:
        """The notes that stay valid until something changes; a run without work prints them again."""
        return tuple(note for note in self.notes if note not in self.told_once)

    def observe(self, observer: Observer) -> None:
        """Add an observer, whose methods are called from now on."""
        self._observers.append(observer)

    def begin(self, step: str) -> Output:
        """Allocate a commit number for ``step`` and register the waiting scorers; call it only when there is work.

        Raises LeaseLost when another process has taken the lease.
        """
        commit = self.writer.begin(step, self._unregistered)
        self._unregistered.clear()
        return Output(self.lake.data_path, self.writer.run_id, commit, step)

    def work(self, step: str, items: Sequence[WorkItem], job: Job, most_workers: int = 0) -> int:
        """Run ``job`` over ``items``, commit results every few seconds, and return the number of items.

        ``most_workers`` limits the workers, 0 for no limit. Raises the errors of `JobStage.run`, and LeaseLost.
        """
        placement = replace(self.placement, workers=most_workers) if most_workers else self.placement
        with self._stage(step, job, placement) as stage:
            return self.work_round(step, items, stage)

    def work_rounds(self, step: str, rounds: Iterable[Sequence[WorkItem]], job: Job) -> None:
        """Run ``job`` over each round of a work list. A round is queried after the previous one is committed.

        Raises PairmillError when the run's budget is spent.
        """
        if self.is_measured:
            return
        prices = self.placement.pool_of(getattr(job, "model", "")).prices
        with self._stage(step, job, self.placement) as stage:
            for items in rounds:
                for portion in self.budget.affordable(step, items, prices):
                    self.work_round(step, portion, stage)

    def work_round(self, step: str, items: Sequence[WorkItem], stage: JobStage) -> int:
        """Run a stage over one round of items and commit the results; return the number of items.

        Raises BudgetSpent, after a commit, when the run has reached a limit.
        """
        items = stage.sized(items)
        self.spending.check(step, len(items))
        self.counts[step] = self.counts.get(step, 0) + len(items)
        if items:
            output = self.begin(step)
            count = RowCount(items)
            commit_stream(self.writer, self._run_with_progress(step, items, stage, output, count), self.commit_files)
            self.rows[step, stage.unit] += count.total
            self._advance(count.end(step, stage.unit))
        return len(items)

    def compute(self, step: str, rows: int, run: Callable[[], Any], items: int = 1) -> bool:
        """Call ``run``, a computation over all ``rows`` rows in this process, if there are any; return True.

        A survey only counts the computation and returns False: its results do not exist.
        """
        if rows:
            self.spending.check(step, 1)
            run()
        return True

    def follow(self, run: Callable[[], Any]) -> None:
        """Call ``run``, which depends on finished work; a survey, which does no work, skips the call."""
        run()

    def is_due(self, *steps: str) -> bool:
        """Return whether a survey has counted pending rows of any of these steps; False in a run."""
        return False

    def _run_with_progress(
        self, step: str, items: Sequence[WorkItem], stage: JobStage, output: Output, count: RowCount
    ) -> Iterator[list[Manifest]]:
        """Run the items; yield their priced manifests, count them and report progress."""
        self._advance(count.progress(step, stage.unit))

        def show(ahead: int) -> None:
            if count.advance(ahead):
                self._advance(count.progress(step, stage.unit))

        prices = self.placement.pool_of(stage.model).prices
        for manifests in stage.run(items, output, show):
            for text in (text for manifest in manifests for text in manifest.notes):
                self.tell(text)
            priced = self.budget.priced(step, manifests, prices)
            for observer in self._observers:
                observer.finished(step, priced, stage.gpus)
            yield priced
            count.add(manifests)
            self.spending.add(manifests, stage.gpus)
            self.spending.check(step, len(items) - count.finished)
            if count.finished < len(items):  # the last item is reported after the commit
                count.advance()
                self._advance(count.progress(step, stage.unit))

    def _stage(self, step: str, job: Job, placement: Placement) -> JobStage:
        """Return a stage whose waits and stalls the run shows."""
        show, stalled = partial(self._show_waiting, step), partial(self._stalled, step)
        return JobStage(job, placement, show, stalled, step, self.fleets)

    def _advance(self, progress: Progress) -> None:
        """Show progress to the run's display and its observers."""
        self.progress(progress)
        for observer in self._observers:
            observer.progressed(progress)

    def _stalled(self, step: str, report: str) -> None:
        for observer in self._observers:
            observer.stalled(step, report)

    def _show_waiting(self, step: str, text: str) -> None:
        """Show the wait of ``step`` in the lease row, which other processes read, and to the run's own display."""
        self.writer.show_waiting(f"{step}: {text}" if text else "")
        self.waiting(step, text)

    def store(self, step: str, item: WorkItem, parts: Iterable[Part]) -> None:
        """Write and commit rows that this process computes, such as edges between all images. Raises LeaseLost.

        Parts are written one by one, so together they may be larger than memory.
        """
        self.counts[step] = self.counts.get(step, 0) + 1
        output = self.begin(step)
        commit_stream(self.writer, [write_parts(parts, item, output)])
