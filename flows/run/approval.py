"""Show a person the first captions of a run, or the images nearest each threshold, before texts cost anything."""

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from pairmill.catalog.cut.cut import count_cut, cut
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.contents import homes_of_images
from pairmill.catalog.pending.generated import without_unset_thresholds
from pairmill.catalog.queries import captioned
from pairmill.catalog.queries.gallery.marginal_items import MarginalItem, marginal_items
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms.score import Stage
from pairmill.flows.curate import RunStep
from pairmill.flows.pages.renderer import render_whole, write_page
from pairmill.flows.run.outcome import make_reports_folder
from pairmill.tasks.generate import caption as captioning
from pairmill.tasks.generate.caption import caption, first_lacking, select_captions
from pairmill.tasks.generate.waves import next_wave
from pairmill.tasks.measure.calibrate import calibrate
from pairmill.tasks.publish import publish
from pairmill.tasks.release.gallery.thumbnails import NONE, thumbnails
from pairmill.tasks.run.session import Session


@dataclass(frozen=True)
class CaptionOutcome:
    """The first captions of a run."""

    captions: list[dict[str, Any]]  # the first captions, rows of `captioned.first_captions`
    left: int  # number of images without a caption
    strip: str  # path of the HTML strip with images and captions, '' without captions
    is_demo: bool  # whether the small shipped captioner made them

    @property
    def said(self) -> str:
        """Counts of the captions by status as text, such as '190 ok, 10 empty'; 'none' without captions."""
        found = Counter(row["status"] for row in self.captions)
        return ", ".join(f"{n:,} {status}" for status, n in found.most_common()) or "none"

    @property
    def refused(self) -> str:
        """Error message with the remedy, for a run whose first captions were not approved."""
        return (
            f"the first {len(self.captions):,} captions were not approved: they stay in the lake, and nothing more was "
            "spent. Change the model or the prompt (captioners.main.prompt, by --set) and run again: captions by "
            "another prompt are others."
        )


Look = Callable[[CaptionOutcome], None]


class FirstCaptions:
    """A step runner that calls ``look`` once with the first captions, before any other image is captioned.

    Steps run by ``run_step``. ``look`` raises to stop the run before the other captions cost anything.
    """

    def __init__(self, session: Session, run_step: RunStep, look: Look) -> None:
        session.shows_first = True
        self._run_step, self._look, self._shown = run_step, look, False

    def __call__(self, step: Callable[[Session], Any], session: Session) -> Any:
        """Run a step and return its result; call ``look`` before it if the first captions are complete."""
        is_due = step is publish or (step is caption and not first_lacking(session))
        if is_due and not self._shown:
            self._shown = True
            self._look(caption_outcome(session))
        return self._run_step(step, session)


def caption_first(session: Session, run_step: RunStep) -> CaptionOutcome:
    """Caption the first images, for people to look at, unless they have captions; return the first captions."""
    session.shows_first = True
    select_captions(session)
    if first_lacking(session) and run_step(next_wave, session):
        run_step(caption, session)
    return caption_outcome(session)


def caption_outcome(session: Session) -> CaptionOutcome:
    """Read the first captions of the recipe's first model; write their HTML strip into the lake's ``reports/``."""
    lake, scorer = session.lake, session.plan.scorer(session.plan.first_captions)
    found = captioned.first_captions(lake, scorer, captioning.FIRST)
    path = make_reports_folder(lake.uri) / f"captions-{scorer[:12]}.html"
    is_demo = captioned.has_demo_weights(lake, scorer)
    strip = write_strip(lake, session.recipe, found, str(path), is_demo) if found else ""
    return CaptionOutcome(found, captioned.count_uncaptioned(lake, session.plan), strip, is_demo)


LONGEST = 2000  # characters shown of one caption


def write_strip(lake: Lake, recipe: Recipe, captions: list[dict[str, Any]], path: str, is_demo: bool = False) -> str:
    """Write ``captions``, rows of `captioned.first_captions`, with their images to the file ``path``; return ``path``.

    The file makes no requests and embeds the images as WebPs of some 8 KB each: share it only as you would share the
    images. An image whose source cannot be reached is left out. ``is_demo`` marks every caption as one by the small
    shipped captioner.
    """
    captioner = recipe.captioners[0]
    pictures = thumbnails(lake, [(row["sha256"], row["shard"]) for row in captions])
    html = render_whole(
        "caption_strip.html.j2",
        model=recipe.models[captioner.model],
        prompt=captioner.prompt,
        max_tokens=captioner.max_tokens,
        is_demo=is_demo,
        statuses=dict(Counter(row["status"] for row in captions).most_common()),
        captions=[{**row, "text": row["text"][:LONGEST], **pictures.get(row["sha256"], NONE)} for row in captions],
    )
    return write_page(html, path)


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
