"""Publish: cut once more with all scores, measure recall, and write the next version if it differs."""

from catalog.ask.idle_rules import idle_rules
from catalog.cut import publication
from catalog.cut.cut import cut, cut_after_captions
from catalog.cut.publication import Published
from tasks.recall import measure_recall
from tasks.run.session import Session

LOW_RECALL = 0.8


def publish(session: Session) -> Published:
    """Write the dataset's next version, or find that the newest one equals it."""
    cut(session.lake, session.plan)
    cut_after_captions(session.lake, session.plan)
    recall = measure_recall(session)
    if recall is not None and recall < LOW_RECALL:
        probes = session.recipe.association.probes
        session.note(
            f"recall@{session.recipe.association.top_k} of the retrieval is {recall:.2f}: a picture misses some of its "
            f"nearest sentences. Raise association.probes (now {probes}); it costs search alone."
        )
    published = publication.publish(
        session.lake, session.plan, session.writer.run_id, recall, lambda: session.begin("publish").commit
    )
    if published.is_new:
        for rule in idle_rules(session.lake, session.plan, published.name, published.version, _newest(session)):
            session.note(str(rule))
    if not published.n_pairs:
        session.note("no pair is left: the funnel shows which rule took the last ones, `pairmill why` each picture's.")
    if not published.is_new and (since := publication.images_since(session.lake, published)):
        session.note(
            f"{since:,} pictures came after {published.name}@{published.version} and change none of its pairs: the "
            "next version that differs has their decisions; until then `pairmill why` shows which rule each one fails."
        )
    return published


def _newest(session: Session) -> int:
    return session.lake.query("SELECT coalesce(max(commit), 0) FROM commits")[0][0]
