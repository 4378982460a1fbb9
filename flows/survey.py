"""Count what a run would do, without doing it: the steps run over a session that notes instead of working.

Where centroids would be trained, what lies downstream has no identity yet: all that reaches it will be done.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from catalog.lake.lake import Lake
from catalog.pending.item import WorkItem
from catalog.recipe.plan import Plan
from catalog.write.lease import Writer
from ops.read.source import SourceError
from tasks.associate import associate
from tasks.caption import caption, fuse, tag
from tasks.cluster import cluster
from tasks.duplicates import group_duplicates
from tasks.fetch import fetch
from tasks.ingest import ingest
from tasks.run.session import Session
from tasks.run.stage import Output, Placement
from tasks.score_images import score_images
from tasks.score_sentences import score_sentences

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

    def work(self, step: str, items: Sequence[WorkItem], job: Any) -> int:
        self.saw(step, sum(len(item.keys) for item in items), len(items))
        return len(items)

    def compute(self, step: str, rows: int, run: Callable[[], Any], items: int = 1) -> bool:
        self.saw(step, rows, items)
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
        self.found.append(Pending(self.step, work, rows, items, due))


def survey(lake: Lake, plan: Plan, sources: Sequence[str]) -> Survey:
    """Count the pending work of each step of curate; the lake may be read-only. Unreachable sources become notes."""
    seen = Survey(cast(Writer, _Reader(lake)), plan, Placement())
    for uri in sources:
        seen.step, seen.sources = "ingest", (uri,)
        try:
            ingest(seen)
        except SourceError as error:
            seen.note(str(error))
    steps: tuple[Step, ...] = (
        fetch, score_images, score_sentences, cluster, group_duplicates, associate, caption, tag, fuse
    )  # fmt: skip
    for step in steps:
        seen.step = step.__name__
        before = len(seen.found)
        step(seen)
        if len(seen.found) == before and seen.unresolved and _wanted(seen):
            seen.saw(seen.step.replace("_", " "), 0, 0)
    return seen


def _wanted(seen: Survey) -> bool:
    recipe = seen.recipe
    absent = {"fetch": recipe.fetch is None, "caption": not recipe.captioners, "tag": recipe.tags is None,
              "fuse": recipe.fuse is None}  # fmt: skip
    return not absent.get(seen.step, False)
