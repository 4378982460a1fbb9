"""Caption every picture of a lake, without rules: the first few, so that people can look at them, then the others."""

from pairmill.catalog.ask import captioned
from pairmill.catalog.pending.uncaptioned import uncaptioned
from pairmill.tasks.generate.caption import run_captioner
from pairmill.tasks.run.identity import caption_scorer
from pairmill.tasks.run.session import Session

FIRST = 200  # shown before the others are paid for
FIRST_ITEM = 25  # so that eight workers have the first ones done together


def select_captioner(session: Session) -> str:
    """Have the plan read captions by the recipe's first captioner; return its digest."""
    return session.use(session.plan.captioner(0), caption_scorer(session.recipe, session.recipe.captioners[0]))


def caption_first(session: Session) -> None:
    """Caption as many pictures as lack to the first FIRST of this captioner in the lake."""
    digest = select_captioner(session)
    lacking = max(0, FIRST - sum(captioned.by_status(session.lake, digest).values()))
    run_captioner(session, "first captions", uncaptioned(session.lake, digest, lacking, FIRST_ITEM), 0)


def caption_rest(session: Session) -> None:
    """Caption every picture that this captioner has not described yet."""
    digest = select_captioner(session)
    run_captioner(session, "captions", uncaptioned(session.lake, digest), 0)
