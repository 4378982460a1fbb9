"""Publish a dataset version unless the newest one is equal; note the weak points that it shows, with the remedies."""

from collections import Counter
from collections.abc import Iterator

from pairmill.catalog.cut import publication
from pairmill.catalog.cut.cut import count_cut, cut
from pairmill.catalog.cut.publication import Published
from pairmill.catalog.pending import quarantine
from pairmill.catalog.queries.datasets import Dataset, FunnelStep, find, funnel
from pairmill.catalog.queries.figures.canary_rates import canary_rates
from pairmill.catalog.queries.losses.rule_losses import heavy_losses, idle_rules
from pairmill.catalog.recipe.parts import Association
from pairmill.catalog.terms.counted import counted
from pairmill.catalog.terms.error import NoPairs
from pairmill.catalog.terms.score import Stage
from pairmill.ops.whole.components import components
from pairmill.tasks.measure.calibrate import calibrate
from pairmill.tasks.relate.recall import measure_recall
from pairmill.tasks.run.session import Session


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
    session.note(*published.notes)
    advise(session, published, recall)
    return published


LOW_RECALL = 0.8


def advise(session: Session, published: Published, recall: float | None) -> None:
    """Add notes on a published version to the session; ``recall``, [0, 1], is that of its association, None without."""
    dataset = find(session.lake, f"{published.name}@{published.version}")
    losses = heavy_losses(session.lake, session.plan, funnel(session.lake, dataset), published.n_pairs)
    session.note(*_on_recall(session.recipe.association, recall))
    session.note(*_on_canaries(session, dataset), once=True)
    session.note(*losses)
    # Without a pair, the losses name the rules that drop all sentences.
    names_rules = bool(losses) and not published.n_pairs and session.recipe.association.at_least > 0
    if published.is_new:
        session.note(*_on_idle_rules(session, dataset, names_rules), once=True)
    session.note(*_on_withheld_texts(session))
    for reason, before in session.retried.items():
        after = quarantine.count(session.lake, reason)
        session.note(f"retried '{reason}': {before:,} items were in quarantine for it, {after:,} are now.", once=True)


def explain_no_pairs(session: Session) -> str:
    """Return one line on why the last cut keeps no picture: drops by rule, quarantined items, and the remedy."""
    lake, plan = session.lake, session.plan
    steps = [FunnelStep("image", *step) for step in publication.image_funnel(lake, plan)]
    steps += [FunnelStep("sentence", *step) for step in publication.sentence_funnel(lake, plan)]
    dropped = ", ".join(f"{each.rule} {each.n_dropped:,}" for each in steps if each.kind == "image" and each.n_dropped)
    of_rules = (
        f" ({counted(steps[0].n_in, 'pictures')}; dropped: {dropped})" if dropped else ", since there is no picture"
    )
    faults = Counter[str]()
    for each in quarantine.fault_counts(lake):
        faults[each.reason] += each.items
    reasons = ", ".join(f"{n:,} {reason}" for reason, n in faults.most_common(3))
    in_quarantine = [f"in quarantine: {reasons} (pairmill quarantine)"] if reasons else []
    notes = [*heavy_losses(lake, plan, steps, 0), *in_quarantine, *session.notes]
    first = f"no pair is left, so no version of {plan.recipe.name} is published{of_rules}"
    last = "What was measured stays. --allow-empty publishes the empty version, for `pairmill why`"
    return ". ".join([first, *(note[:1].upper() + note[1:].rstrip(".") for note in notes), last]) + "."


def _on_recall(association: Association, recall: float | None) -> Iterator[str]:
    """Yield the note on a recall below LOW_RECALL."""
    if recall is not None and recall < LOW_RECALL:
        remedy = f"--set association.recall=0.95 finds the probes for it (now association.probes={association.probes})"
        if association.recall is not None:
            remedy = f"association.recall asks for {association.recall:g}: set association.probes instead"
        yield (
            f"recall@{association.top_k} of the retrieval is {recall:.2f}: a picture misses some of its nearest "
            f"sentences. {remedy}; it costs search alone."
        )


def _on_canaries(session: Session, dataset: Dataset) -> Iterator[str]:
    """Yield a note for each rule that accepts many wrong texts; none for the demo's weights."""
    kinds = {check.name: "candidates" for check in session.plan.candidate_checks}
    for rate in () if session.demo_weights else canary_rates(session.lake, dataset):
        if rate.is_high:
            yield (
                f"the rule {rate}: a picture's best sentence from other pages, or another picture's caption or fused "
                "text. Unless many of these describe their picture too, make the rule stricter: "
                f"{kinds.get(rate.rule, 'images')}.{rate.rule}.keep"
            )


def _on_idle_rules(session: Session, dataset: Dataset, has_losses: bool) -> Iterator[str]:
    """Yield a note for each rule that drops all or nothing; the notes on losses name rules that drop all sentences."""
    for rule in idle_rules(session.lake, session.plan, dataset):
        if not (has_losses and rule.kind == "sentence" and rule.n_dropped == rule.n_in):
            yield str(rule)


def _on_withheld_texts(session: Session) -> Iterator[str]:
    """Yield a note for each kind of text, caption or fused, that some pairs lack because its status is not 'ok'."""
    for kind, counts in publication.count_withheld(session.lake).items():
        if counts:
            why = ", ".join(f"{n:,} {status}" for status, n in counts.items())
            remedy = " A higher max_tokens lets them end." if "cut_off" in counts else ""
            yield f"{sum(counts.values()):,} {kind} are left out of their pairs, by their status: {why}.{remedy}"
