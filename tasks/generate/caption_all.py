"""Caption every image of a lake without rules: first a few for people to look at, then the others."""

from pairmill.catalog.pending.uncaptioned import uncaptioned
from pairmill.catalog.queries import captioned
from pairmill.tasks.generate.caption import note_other_pictures, run_captioner
from pairmill.tasks.run.place.identity import caption_scorer
from pairmill.tasks.run.session import Session

FIRST = 200  # captions shown for approval before the cost of the others
FIRST_ITEM = 25  # eight workers caption the first images at once


def select_captioner(session: Session) -> str:
    """Make the plan read only captions of the recipe's first captioner; return the captioner's digest."""
    captioner = session.recipe.captioners[0]
    scorer = caption_scorer(session.recipe, captioner)
    note_other_pictures(session, captioner, scorer)
    return session.use(session.plan.of_captioner("captions", 0), scorer)


def caption_first(session: Session) -> None:
    """Caption images until the lake has FIRST captions of this captioner."""
    digest = select_captioner(session)
    lacking = max(0, FIRST - sum(captioned.by_status(session.lake, digest).values()))
    run_captioner(session, "first captions", uncaptioned(session.lake, digest, lacking, FIRST_ITEM), 0)


def caption_rest(session: Session) -> None:
    """Caption every image that this captioner has not captioned yet."""
    digest = select_captioner(session)
    run_captioner(session, "captions", uncaptioned(session.lake, digest), 0)
