"""Count what a run would do, without doing it: the steps run over a session that counts instead of working.

Global steps that compute before they store (training, comparing hashes) are asked whether they are due. What lies
downstream of a due one has no identity yet, so all that reaches it will be done.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from catalog.lake.lake import Lake
from catalog.pending import fetches, training
from catalog.pending.item import WorkItem
from catalog.pending.training import IMAGES, SENTENCES
from catalog.recipe.plan import Plan
from catalog.write.lease import Writer
from ops.read.source import SourceError, open_source
from tasks.associate import associate
from tasks.caption import caption, fuse, tag
from tasks.cluster import centroid_scorer, cluster, outgrown
from tasks.duplicates import perceptual, perceptual_scorer, regroup, semantic, uncompared
from tasks.ingest import listing, new_shards
from tasks.run.session import Session
from tasks.run.stage import Output, Placement
from tasks.score_images import score_images
from tasks.score_sentences import score_sentences


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
    unresolved: bool = False

    def work(self, step: str, items: Sequence[WorkItem], job: Any) -> int:
        self.saw(step, sum(len(item.keys) for item in items), len(items))
        return len(items)

    def store(self, step: str, item: WorkItem, parts: Any) -> None:
        self.saw(step, 1, 1)

    def begin(self, step: str) -> Output:
        raise AssertionError(f"'{step}' would write")

    def saw(self, work: str, rows: int, items: int) -> None:
        above = any(each.rows for each in self.found if each.step != self.step)
        due = "everything that reaches it" if self.unresolved else "and what comes from above" if above else ""
        self.found.append(Pending(self.step, work, rows, items, due))


def survey(lake: Lake, plan: Plan, sources: Sequence[str]) -> Survey:
    """Count the pending work of each step of curate; the lake may be read-only. Unreachable sources become notes."""
    seen = Survey(cast(Writer, _Reader(lake)), plan, Placement(), tuple(sources))
    steps: tuple[Callable[[Survey], Any], ...] = (
        _ingest, _fetch, score_images, score_sentences, _cluster, _group_duplicates, associate, caption, tag, fuse
    )  # fmt: skip
    for step in steps:
        seen.step = step.__name__.strip("_")
        before = len(seen.found)
        step(seen)
        if len(seen.found) == before and seen.unresolved and _wanted(seen):
            seen.saw(seen.step.replace("_", " "), 0, 0)
    return seen


def _wanted(seen: Survey) -> bool:
    recipe = seen.recipe
    absent = {"caption": not recipe.captioners, "tag": recipe.tags is None, "fuse": recipe.fuse is None}
    return not absent.get(seen.step, False)


def _ingest(seen: Survey) -> None:
    for uri in seen.sources:
        try:
            source = open_source(uri)
            seen.work("ingest", new_shards(seen, source, listing(source)), None)
        except SourceError as error:
            seen.note(str(error))


def _fetch(seen: Survey) -> None:
    if seen.recipe.fetch is not None:
        n = fetches.count_unfetched(seen.lake)
        seen.saw("fetch", n, -(-n // fetches.PORTION))


def _cluster(seen: Survey) -> None:
    """Count training where centroids are missing or outgrown; else the vectors to assign."""
    due = False
    sizes = (seen.recipe.association.clusters, seen.recipe.balance.clusters)
    for kind, at_most in zip((SENTENCES, IMAGES), sizes, strict=True):
        scorer = centroid_scorer(seen, kind, at_most)
        n = training.eligible(seen.lake, seen.plan, kind)
        found = training.trained(seen.lake, scorer.digest)
        if found is None or outgrown(seen, found, n):
            seen.saw(f"train {kind.kind} centroids", n, 1)
            due = True
    if due:
        seen.unresolved = True
    else:
        cluster(seen)


def _group_duplicates(seen: Survey) -> None:
    before = len(seen.found)
    seen.use("perceptual_edges", perceptual_scorer(seen))
    if uncompared(seen):
        seen.saw("perceptual duplicates", 1, 1)
    else:
        perceptual(seen)
    if not seen.unresolved:
        semantic(seen)
    if any(each.rows for each in seen.found[before:]):
        seen.saw("group duplicates", 1, 1)
    elif not seen.unresolved:
        regroup(seen)
