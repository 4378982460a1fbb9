"""Request generated texts in waves, only for images that may still be kept, until no unknown text matters."""

from pairmill.catalog.cut import late_cut
from pairmill.catalog.cut.cut import cut
from pairmill.catalog.pending.chosen_captions import asked_share
from pairmill.catalog.pending.generated import mean_seconds, without_unset_thresholds
from pairmill.catalog.terms.score import Stage
from pairmill.catalog.terms.scores import SYNTHETIC
from pairmill.catalog.write.runs import record_wave
from pairmill.tasks.generate.caption import first_lacking, select_captions
from pairmill.tasks.generate.fusion import select_fusion
from pairmill.tasks.generate.tag import select_tags
from pairmill.tasks.measure.calibrate import calibrate, calibrate_late
from pairmill.tasks.run.session import Session

WAVE = "next wave"


def next_wave(session: Session) -> bool:
    """Cut by the known texts, and request the unknown texts of images that may be kept; return whether there are any.

    The first wave of a run that shows its first captions requests these alone.

    Raises RuntimeError when the previous wave generated none of its requested texts.
    """
    calibrate(session, Stage.CAPTION)
    for use in (select_captions, select_tags, select_fusion):
        use(session)
    plan = without_unset_thresholds(session.plan)
    cut(session.lake, plan)
    before = session.plan
    # A threshold is measured on all images that would be kept without it, so that a killed run finds the same one.
    if not late_cut.count_unknown(session.lake):
        calibrate_late(session)
    if session.plan is not before:
        plan = without_unset_thresholds(session.plan)
        cut(session.lake, plan)
    if session.waves:
        _keep_record(session)
    if not late_cut.count_unknown(session.lake):
        session.cut = plan
        return False
    asked = late_cut.select_wave(session.lake, session.plan, session.waves + 1, first_lacking(session))
    session.waves += 1  # only now: a step that fails above is retried and must request this wave again
    session.compute(WAVE, asked, lambda: None)
    return True


def describe_cost(session: Session) -> str:
    """Return a sentence on the requested wave's cost, estimated from the seconds of captions and fused texts so far."""
    asked = late_cut.count_requested(session.lake)
    said = f"the next wave asks for texts of {asked:,} pictures"
    each = asked_share(session.plan)
    shares = {session.plan.of_captioner("captions", place): each for place in range(len(session.recipe.captioned_by))}
    shares |= {SYNTHETIC.table: 1.0} if session.recipe.fuse is not None else {}
    spent = []
    for key, share in shares.items():  # the first word of a key is the table
        seconds = mean_seconds(session.lake, key.split(" ")[0], session.plan.scorer(key))
        if seconds is not None:
            spent.append(seconds * share)
    if not spent or len(spent) < len(shares):
        return f"{said}; what one takes is known once some are made."
    return f"{said}: {sum(spent):.2g} s each so far, {asked * sum(spent) / 3600:,.2g} hours of one worker."


def _keep_record(session: Session) -> None:
    """Write the outcome of the previous wave to ``waves``. Idempotent, because the step may be retried."""
    seen = late_cut.read_outcome(session.lake)
    if not seen.known:
        raise RuntimeError(f"wave {session.waves} requested texts for {seen.asked:,} pictures, and none was committed")
    commit = session.begin(WAVE).commit
    record_wave(session.lake, session.writer.run_id, session.waves, (seen.asked, seen.passed, seen.kept), commit)
