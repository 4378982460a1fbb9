"""Stop a curation before texts are generated: show what lies nearest each threshold, and take a person's answer.

The gate's pass is a run of its own, which ends before the question, so that nobody waits with the lake's lease. The
pass after the answer finds all of its work done, unless a changed threshold lets more items in.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from pairmill.catalog.cut.cut import count_cut, cut
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.pending.contents import homes_of_images
from pairmill.catalog.pending.generated import without_unset_thresholds
from pairmill.catalog.queries.gallery.marginal_items import MarginalItem, marginal_items
from pairmill.catalog.recipe.recipe import Recipe, changed
from pairmill.catalog.terms.error import BadRecipe, NotApproved
from pairmill.catalog.terms.score import Stage
from pairmill.catalog.write import lease, runs
from pairmill.flows.pages.renderer import render_whole, write_page
from pairmill.flows.run.outcome import make_reports_folder
from pairmill.tasks.measure.calibrate import calibrate
from pairmill.tasks.release.gallery.thumbnails import NONE, thumbnails
from pairmill.tasks.run.session import Session

FLOW = "curate up to the gate"
KINDS = ("images.", "sentences.")


@dataclass(frozen=True)
class BesideThresholds:
    """What a person decides on.

    Attributes:
        run_id: The run of the gate's pass.
        rules: The predicate of each rule on images that is decided by now, by name, in the order of the cut.
        items: The images nearest each threshold.
        page: The path of the HTML page that shows their pictures.
        kept: Number of images that all rules so far keep.
        images: Number of images in all.
    """

    run_id: str
    rules: dict[str, str]
    items: list[MarginalItem]
    page: str
    kept: int
    images: int


@dataclass(frozen=True)
class Answer:
    """A person's answer: who, when, whether the run may go on, and the settings of rules that they changed."""

    by: str
    at: datetime
    approved: bool
    changes: dict[str, str]

    def __str__(self) -> str:
        verdict = "approved" if self.approved else "declined"
        with_changes = ", ".join(f"{key} = {value}" for key, value in self.changes.items())
        changes = f", changed: {with_changes}" if with_changes else ""
        return f"thresholds {verdict} by {self.by} at {self.at:%Y-%m-%d %H:%M:%S} UTC{changes}"


def beside_thresholds(session: Session) -> BesideThresholds:
    """Cut by all scores so far, and return what lies beside the thresholds, with a page of the pictures.

    A rule on generated texts has no value yet, so it is left out. The page is a file among the lake's reports, which a
    takedown removes.
    """
    calibrate(session, Stage.CAPTION)
    lake, plan = session.lake, without_unset_thresholds(session.plan)
    cut(lake, plan)
    own = {rule.name: rule.predicate for rule in plan.recipe.images}
    early = {c.name: own[c.name] for c in plan.image_checks if c.name in own and c.stage < Stage.CAPTION}
    items = marginal_items(lake, plan, frozenset(early))
    ids = sorted({item.image_id for item in items})
    homes = homes_of_images(lake, ids)
    kept, images = count_cut(lake)
    made = thumbnails(lake, sorted(set(homes.values())))
    rows = [asdict(item) | made.get(homes[item.image_id][0], NONE) for item in items]
    html = render_whole("thresholds.html.j2", rules=early, rows=rows, kept=kept, images=images)
    page = write_page(html, str(make_reports_folder(lake.uri) / f"thresholds-{session.writer.run_id}.html"))
    return BesideThresholds(session.writer.run_id, early, items, page, kept, images)


def with_changes(recipe: Recipe, changes: Mapping[str, str]) -> Recipe:
    """Return the recipe with changed rules. Raises BadRecipe for another setting than a rule's, or one not valid."""
    for key in changes:
        if not key.startswith(KINDS):
            raise BadRecipe(f"'{key}' is no rule: name its setting as in images.short_side.keep.")
    return changed(recipe, changes)


def record(uri: str, shown: BesideThresholds, answer: Answer, wait_seconds: float) -> None:
    """Write the answer into the row of the gate's run. Raises NotApproved if the answer is no.

    Raises LeaseHeld if another run writes to the lake for ``wait_seconds``.
    """
    with create_or_open(uri) as lake, lease.writing(lake, shown.run_id, "gate", wait_seconds):
        runs.add_note(lake, shown.run_id, str(answer))
    if not answer.approved:
        raise NotApproved(f"{answer}. What is made stays in the lake, and nothing more was generated; run it again.")


def now() -> datetime:
    """Return the time of an answer."""
    return datetime.now(UTC)
