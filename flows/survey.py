"""Count what a run would do, without doing it: the steps run over a session that notes instead of working.

Where centroids would be trained, what lies downstream has no identity yet: all that reaches it will be done.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.training import SURVIVORS
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.write.lease import Writer
from pairmill.flows.curate import curate_steps
from pairmill.ops.read.source import SourceError
from pairmill.tasks.collect.ingest import ingest
from pairmill.tasks.generate.waves import WAVE, cost, next_wave
from pairmill.tasks.publish import publish
from pairmill.tasks.run.partition import Output
from pairmill.tasks.run.placement import Placement
from pairmill.tasks.run.session import Session

Step = Callable[[Session], Any]


@dataclass(frozen=True)
class Pending:
    """Pending work: ``rows`` in ``items`` work items; ``due`` says why that is a lower bound, '' when it is exact."""

    step: str
    work: str
    rows: int
    items: int
    due: str


@dataclass(frozen=True)
class _Reader:
    """Stand-in for a session's writer that only reads."""

    lake: Lake
    run_id: str = ""


@dataclass
class Survey(Session):
    """A session that counts the work it is given instead of doing it."""

    found: list[Pending] = field(default_factory=list)
    step: str = ""

    @property
    def unresolved(self) -> bool:
        """Whether centroids would be trained, on whose content the identity of all that follows depends."""
        return any(each.work.startswith("train ") for each in self.found)

    @property
    def capped(self) -> bool:
        """Whether the pictures that a cut keeps can be counted: not where balance lacks the clusters that it is to cap,
        so that no picture falls by it."""
        lacking = any(each.work == f"train {SURVIVORS.kind} centroids" for each in self.found)
        return not lacking or bool(self.plan.scorer(SURVIVORS.clusters))

    def work_round(self, step: str, items: Sequence[WorkItem], stage: Any) -> int:
        todo = items if self.capped else ()
        self.saw(step, sum(len(item.keys) for item in todo), len(todo))
        return len(items)

    def compute(self, step: str, rows: int, run: Callable[[], Any], items: int = 1) -> bool:
        self.saw(step, rows if step != WAVE or self.capped else 0, items)
        return False

    def follow(self, run: Callable[[], Any]) -> None:
        """Nothing was done, so nothing follows."""

    def is_due(self, *steps: str) -> bool:
        return any(each.rows for each in self.found if each.work in steps)

    def begin(self, step: str) -> Output:
        raise AssertionError(f"'{step}' would write")

    def saw(self, work: str, rows: int, items: int) -> None:
        above = any(each.rows for each in self.found if each.step != self.step)
        due = "everything that reaches it" if self.unresolved else "and what comes from above" if above else ""
        if self.found and (self.found[-1].step, self.found[-1].work) == (self.step, work):  # another round of it
            last = self.found.pop()
            rows, items, due = last.rows + rows, last.items + items, last.due
        self.found.append(Pending(self.step, work, rows, items, due))


def survey(lake: Lake, plan: Plan, sources: Sequence[str]) -> Survey:
    """Count the pending work of each step of curate; the lake may be read-only. Unreachable sources become notes."""
    seen = Survey(cast(Writer, _Reader(lake)), plan, Placement(), tuple(sources))
    curate_steps(seen, _survey_step)
    return seen


def _survey_step(step: Step, session: Session) -> Any:
    """Let one step note its work. What would be published depends on all of it: that step is left out."""
    seen = cast(Survey, session)
    seen.step, before = step.__name__, len(seen.found)
    if step is ingest:
        _survey_sources(seen)
    elif step is next_wave:
        return seen.waves == 0 and _survey_wave(seen)
    elif step is not publish:
        step(seen)
        if len(seen.found) == before and seen.unresolved and _wanted(seen):
            seen.saw(seen.step.replace("_", " "), 0, 0)


def _survey_wave(seen: Survey) -> bool:
    """Note the first wave and what it costs: how many pictures are left for those behind it, nobody can know."""
    if next_wave(seen):
        seen.note(cost(seen))
        return True
    if seen.unresolved:
        sections = {"tag": seen.recipe.tags, "fuse": seen.recipe.fuse}
        captions = [f"caption {each.name}" for each in seen.recipe.captioners]
        for seen.step in [*captions, *(work for work, section in sections.items() if section)]:
            seen.saw(seen.step, 0, 0)
    return False


def _survey_sources(seen: Survey) -> None:
    """One source at a time, so that one out of reach is a note and hides no other."""
    for uri in seen.sources:
        try:
            ingest(replace(seen, sources=(uri,)))
        except SourceError as error:
            seen.note(str(error))


def _wanted(seen: Survey) -> bool:
    recipe = seen.recipe
    absent = {"fetch": recipe.fetch is None, "group_sentences": recipe.sentence_duplicates is None,
              "caption": not recipe.captioners, "tag": recipe.tags is None, "fuse": recipe.fuse is None}  # fmt: skip
    return not absent.get(seen.step, False)
