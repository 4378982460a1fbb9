"""Select the images nearest each threshold before texts are generated, for a person to approve the thresholds."""

from dataclasses import asdict, dataclass

from pairmill.catalog.cut.cut import count_cut, cut
from pairmill.catalog.pending.contents import homes_of_images
from pairmill.catalog.pending.generated import without_unset_thresholds
from pairmill.catalog.queries.gallery.marginal_items import MarginalItem, marginal_items
from pairmill.catalog.terms.score import Stage
from pairmill.flows.pages.renderer import render_whole, write_page
from pairmill.flows.run.outcome import make_reports_folder
from pairmill.tasks.measure.calibrate import calibrate
from pairmill.tasks.release.gallery.thumbnails import NONE, thumbnails
from pairmill.tasks.run.session import Session


@dataclass(frozen=True)
class BesideThresholds:
    """The rules and the images near their thresholds, for a person to approve."""

    run_id: str  # the run that computed the scores
    # predicates by name of the rules on images that need no generated text, in the order of the cut
    rules: dict[str, str]
    items: list[MarginalItem]  # the images nearest each threshold
    page: str  # path of the HTML page with the pictures of ``items``
    kept: int  # number of images that ``rules`` keep
    images: int  # number of all images


def beside_thresholds(session: Session) -> BesideThresholds:
    """Cut by the scores so far; return the images nearest each threshold, and write an HTML page of their pictures.

    Rules on generated texts have no values yet and are left out. A takedown removes the page, which is one of the
    lake's reports.
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
