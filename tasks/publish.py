"""Publish a dataset version: cut with all scores, measure recall, and write it unless the newest version is equal."""

from pairmill.catalog.cut import publication
from pairmill.catalog.cut.cut import count_cut, cut
from pairmill.catalog.cut.publication import Published
from pairmill.catalog.terms.error import NoPairs
from pairmill.catalog.terms.score import Stage
from pairmill.ops.whole.components import components
from pairmill.tasks.measure.calibrate import calibrate
from pairmill.tasks.relate.recall import measure_recall
from pairmill.tasks.run.session import Session
from pairmill.tasks.run_advice import advise, explain_no_pairs


def publish(session: Session) -> Published:
    """Write the dataset's next version and return it; return the newest version if that is equal.

    Raises NoPairs if no picture is kept, unless the session allows an empty version.
    """
    calibrate(session, Stage.CAPTION)
    # The waves ended with the same cut, unless a rule's threshold is still unset.
    if session.cut != session.plan:
        cut(session.lake, session.plan)
    recall = measure_recall(session) if session.recall is None else session.recall
    if not session.allow_empty and not count_cut(session.lake)[0]:
        raise NoPairs(explain_no_pairs(session))
    published = publication.publish(
        session.lake, session.plan, session.writer.run_id, recall, lambda: session.begin("publish").commit, components
    )
    for note in published.notes:
        session.note(note)
    advise(session, published, recall)
    return published
