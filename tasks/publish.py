"""Publish: cut with all scores, measure recall, and write a new dataset version unless the newest one is equal."""

from pairmill.catalog.cut import publication
from pairmill.catalog.cut.cut import cut
from pairmill.catalog.cut.publication import Published
from pairmill.catalog.terms.score import Stage
from pairmill.tasks.measure.calibrate import calibrate
from pairmill.tasks.relate.recall import measure_recall
from pairmill.tasks.run.session import Session
from pairmill.tasks.run_advice import advise


def publish(session: Session) -> Published:
    """Write the dataset's next version; if the newest version is equal, return that."""
    calibrate(session, Stage.CAPTION)
    # The waves ended with the same cut, unless a rule's threshold is still unset.
    if session.cut != session.plan:
        cut(session.lake, session.plan)
    recall = measure_recall(session)
    published = publication.publish(
        session.lake, session.plan, session.writer.run_id, recall, lambda: session.begin("publish").commit
    )
    advise(session, published, recall)
    return published
