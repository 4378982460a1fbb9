"""Publish: cut with all scores, measure recall, and write a new dataset version unless the newest one is equal."""

from pairmill.catalog.cut import publication
from pairmill.catalog.cut.cut import count_cut, cut
from pairmill.catalog.cut.publication import Published
from pairmill.catalog.queries.datasets import Dataset, find
from pairmill.catalog.queries.figures.canary_rates import CanaryRate, canary_rates
from pairmill.catalog.queries.losses.heavy_losses import heavy_losses
from pairmill.catalog.queries.losses.idle_rules import idle_rules
from pairmill.catalog.recipe.parts import Association
from pairmill.catalog.terms.score import Stage
from pairmill.catalog.write.runs import last_commit
from pairmill.tasks.measure.calibrate import calibrate
from pairmill.tasks.relate.recall import measure_recall
from pairmill.tasks.run.session import Session

LOW_RECALL = 0.8


def publish(session: Session) -> Published:
    """Write the dataset's next version; if the newest version is equal, return that."""
    calibrate(session, "image", Stage.CAPTION)
    calibrate(session, "sentence", Stage.CAPTION)
    # The waves ended with the same cut, unless a rule's threshold is still unset.
    cap = session.cut[1] if session.cut and session.cut[0] == session.plan else cut(session.lake, session.plan)
    recall = measure_recall(session)
    if recall is not None and recall < LOW_RECALL:
        session.note(_low_recall(session.recipe.association, recall))
    published = publication.publish(
        session.lake, session.plan, session.writer.run_id, recall, lambda: session.begin("publish").commit
    )
    _tell_cap(session, cap)
    dataset = find(session.lake, f"{published.name}@{published.version}")
    _tell_canaries(session, dataset)
    losses = heavy_losses(session.lake, session.plan, dataset, cap)
    for note in losses:
        session.note(note)
    if published.is_new:
        newest = last_commit(session.lake)
        for rule in idle_rules(session.lake, session.plan, published.name, published.version, newest):
            if not (losses and rule.kind == "sentence" and rule.n_dropped == rule.n_in):  # told by the losses
                session.note(str(rule), once=True)
    if not (published.n_pairs or losses):
        session.note("no pair is left: the funnel shows which rule took the last ones, `pairmill why` each picture's.")
    for kind, counts in publication.withheld(session.lake).items():
        if counts:
            why = ", ".join(f"{n:,} {status}" for status, n in counts.items())
            remedy = " A higher max_tokens lets them end." if "cut_off" in counts else ""
            session.note(
                f"{sum(counts.values()):,} {kind} are left out of their pairs, by their status: {why}.{remedy}"
            )
    return published


def _low_recall(association: Association, recall: float) -> str:
    """Return the note on a recall below LOW_RECALL."""
    remedy = f"--set association.recall=0.95 finds the probes for it (now association.probes={association.probes})"
    if association.recall is not None:
        remedy = f"association.recall asks for {association.recall:g}: set association.probes instead"
    return (
        f"recall@{association.top_k} of the retrieval is {recall:.2f}: a picture misses some of its nearest sentences. "
        f"{remedy}; it costs search alone."
    )


def _tell_cap(session: Session, cap: int) -> None:
    """Add a note about the cap that reaches the recipe's target, or that no cap does."""
    target = session.recipe.balance.target
    if target is None:
        return
    kept = count_cut(session.lake)[0]
    reached = "is the smallest with which" if kept >= target else "drops none, and still only"
    session.note(f"balance: a cap of {cap:,} {reached} {kept:,} pictures are kept; the target is {target:,}.")


def _tell_canaries(session: Session, dataset: Dataset) -> None:
    """Add a note for each rule that accepts many wrong texts; none of the demo's weights, whose scores say nothing."""
    if session.demo_weights:
        return
    kinds = {check.name: "candidates" for check in session.plan.candidate_checks}
    for rate in canary_rates(session.lake, dataset):
        if rate.is_high:
            session.note(_accepts_many(rate, kinds.get(rate.rule, "images")), once=True)


def _accepts_many(rate: CanaryRate, kind: str) -> str:
    """Return the note on a rule that accepts many wrong texts; ``kind`` is the recipe's section with the rule."""
    return (
        f"the rule {rate}: a picture's best sentence once those of its own pages are withheld. Unless many of these "
        f"describe their picture too, make the rule stricter: {kind}.{rate.rule}.keep"
    )
