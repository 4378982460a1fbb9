"""Count the pending work of a run without doing it: run the steps over a session that only counts.

If centroids must be trained first, the steps that depend on them have no digest yet: all their rows are pending.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.training import SURVIVORS
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.write.lease import Writer
from pairmill.flows.curate import curate_steps
from pairmill.ops.read.source import SourceError
from pairmill.tasks.collect.ingest import ingest
from pairmill.tasks.generate.waves import WAVE, describe_cost, next_wave
from pairmill.tasks.measure.score_pairs import score_pairs
from pairmill.tasks.publish import publish
from pairmill.tasks.relate.cluster import cluster_survivors
from pairmill.tasks.run.items.partition import Output
from pairmill.tasks.run.place.placement import Placement
from pairmill.tasks.run.session import Session

Step = Callable[[Session], Any]


@dataclass(frozen=True)
class Pending:
    """Pending work of one step."""

    step: str
    work: str  # description of the work
    rows: int
    items: int
    unit: str  # name of a row in the plural, such as 'pictures'; '' for a step whose rows mean nothing to people
    due: str  # why the counts are a lower bound, '' if they are exact


@dataclass
class Survey(Session):
    """A session that counts its work items instead of processing them."""

    found: list[Pending] = field(default_factory=list)
    step: str = ""

    @property
    def unresolved(self) -> bool:
        """Whether centroids must be trained first; the digests of all later steps depend on them."""
        return any(each.work.startswith("train ") for each in self.found)

    @property
    def capped(self) -> bool:
        """Whether the images inside the cap can be counted: its clusters are trained, or the recipe has no cap.

        Before they are trained the cap drops nothing, and a count would be too high.
        """
        lacking = any(each.work == f"train {SURVIVORS.kind} centroids" for each in self.found)
        return not lacking or bool(self.plan.scorer(SURVIVORS.clusters))

    def work_round(self, step: str, items: Sequence[WorkItem], stage: Any) -> int:
        """Count a round of work items instead of running it; return the number of items."""
        todo = items if self.capped else ()
        self.saw(step, sum(len(item.keys) for item in todo), len(todo), stage.unit)
        return len(items)

    def compute(self, step: str, rows: int, run: Callable[[], Any], items: int = 1) -> bool:
        """Count a computation of ``rows`` rows instead of running it; return False, for not run."""
        self.saw(step, rows if step != WAVE or self.capped else 0, items, "pictures" if step == WAVE else "")
        return False

    def follow(self, run: Callable[[], Any]) -> None:
        """Skip ``run``, which a session calls after completed work."""

    def is_due(self, *steps: str) -> bool:
        """Return whether any of these steps has pending rows."""
        return any(each.rows for each in self.found if each.work in steps)

    def begin(self, step: str) -> Output:
        """Raise AssertionError: a survey never writes."""
        raise AssertionError(f"'{step}' would write")

    def saw(self, work: str, rows: int, items: int, unit: str = "") -> None:
        """Add pending ``work`` of the current step to the counts; rounds of the same work are added up."""
        above = any(each.rows for each in self.found if each.step != self.step)
        due = "all rows that reach it" if self.unresolved else "plus rows from earlier steps" if above else ""
        if self.found and (self.found[-1].step, self.found[-1].work) == (self.step, work):  # a later round
            last = self.found.pop()
            rows, items, due = last.rows + rows, last.items + items, last.due
        self.found.append(Pending(self.step, work, rows, items, unit, due))


def survey(lake: Lake, plan: Plan, sources: Sequence[str]) -> Survey:
    """Count the pending work of each step of curate; ``found`` of the result lists it.

    The lake may be read-only. An unreachable source becomes a note.
    """
    reader = SimpleNamespace(lake=lake, run_id="")
    seen = Survey(cast(Writer, reader), plan, Placement(), tuple(sources))
    curate_steps(seen, _survey_step)
    return seen


def _survey_step(step: Step, session: Session) -> Any:
    """Run one step so that it counts its work. Skip the publish step: its rows depend on all other steps."""
    seen = cast(Survey, session)
    seen.step, before = step.__name__, len(seen.found)
    if step is ingest:
        _survey_sources(seen)
    elif step is next_wave:
        return seen.waves == 0 and _survey_wave(seen)
    elif step is not publish:
        # A step that cuts, or measures a threshold by canaries, attaches the facts, which no transaction admits.
        with nullcontext() if step in (cluster_survivors, score_pairs) else seen.lake.one_snapshot_if_small():
            step(seen)
        if len(seen.found) == before and seen.unresolved and _has_settings(seen):
            seen.saw(seen.step.replace("_", " "), 0, 0)


def _survey_wave(seen: Survey) -> bool:
    """Count the first wave and note its cost; the number of images left for later waves is unknown."""
    if next_wave(seen):
        seen.note(describe_cost(seen))
        return True
    if seen.unresolved:
        sections = {"tag": seen.recipe.tags, "fuse": seen.recipe.fuse}
        captions = [f"caption {each.name}" for each in seen.recipe.captioners]
        for seen.step in [*captions, *(work for work, section in sections.items() if section)]:
            seen.saw(seen.step, 0, 0)
    return False


def _survey_sources(seen: Survey) -> None:
    """Ingest one source at a time, so that an unreachable source becomes a note and hides no other."""
    for uri in seen.sources:
        try:
            ingest(replace(seen, sources=(uri,)))
        except SourceError as error:
            seen.note(str(error))


def _has_settings(seen: Survey) -> bool:
    """Return whether the recipe has settings for the current step."""
    recipe = seen.recipe
    absent = {"fetch": recipe.fetch is None, "group_sentences": recipe.sentence_duplicates is None,
              "associate": not recipe.association.is_on, "group_duplicates": not recipe.duplicates.is_on,
              "score_pairs": not any(score.of == "pair" for score in seen.plan.scores),
              "caption": not recipe.captioners, "tag": recipe.tags is None, "fuse": recipe.fuse is None}  # fmt: skip
    return not absent.get(seen.step, False)
