"""Set the thresholds of rules that drop a given share of items, once the scores that they compare exist."""

from collections.abc import Sequence

from pairmill.catalog.cut import pair_fit
from pairmill.catalog.pending import frozen_thresholds
from pairmill.catalog.pending.frozen_thresholds import FrozenThreshold
from pairmill.catalog.recipe.plan import Check
from pairmill.catalog.terms.score import Stage
from pairmill.tasks.run.session import Session


def calibrate(session: Session, stage: Stage, kinds: Sequence[str] = ("image", "sentence")) -> None:
    """Set the thresholds of the rules on each of ``kinds`` that apply by ``stage``, in rule order.

    Uses the threshold that is frozen in the lake, else measures and freezes it now, which needs all scores of earlier
    stages. A survey measures on the scores that exist. A rule that no item with a value reaches stays without one.
    """
    for kind in kinds:
        for check in frozen_thresholds.unset(session.plan, kind, stage):
            _set(session, kind, check, "")


def calibrate_late(session: Session) -> None:
    """Set the thresholds of the rules on generated texts, measured on a hash sample of the last cut's images."""
    for check in frozen_thresholds.unset(session.plan, "image", None):
        _set(session, "image", check, frozen_thresholds.KEPT)


def _set(session: Session, kind: str, check: Check, among: str) -> None:
    """Set one rule's threshold: the frozen one, else one measured now, among the items of the query ``among``."""
    found = frozen_thresholds.frozen(session.lake, frozen_thresholds.digest(session.plan, kind, check))
    if found is None:
        found = _measure(session, kind, check, among)
        if found is None:
            return
        new = found
        session.compute(f"calibrate {check.name}", new.n, lambda: _freeze(session, kind, check, new))
    session.plan = session.plan.with_threshold(kind, check.name, found.threshold)


def _measure(session: Session, kind: str, check: Check, among: str) -> FrozenThreshold | None:
    """Measure a rule's threshold: by the share that it is to drop, or by canaries; None if it cannot be measured."""
    asked = check.rule.calibrate
    if asked is None or asked.wrong is None:
        return frozen_thresholds.measure_threshold(session.lake, session.plan, kind, check, among)
    if check.name in session.unmeasured:
        return None
    found = pair_fit.threshold_by_canaries(session.lake, session.plan, check)
    if found is None:
        session.unmeasured.add(check.name)
        session.note(
            f"the rule '{check.name}' drops nothing yet: fewer than {pair_fit.FEWEST} deliberately wrong texts were "
            "found, or they are as near to the pictures as their own texts. A number does without them: "
            f"--set images.{check.name}.keep=… and images.{check.name}.calibrate=null",
            once=True,
        )
    return found


def _freeze(session: Session, kind: str, check: Check, found: FrozenThreshold) -> None:
    """Commit a measured threshold, and add a note about it."""
    before = frozen_thresholds.by_other_scorers(session.lake, kind, check)
    commit = session.begin(f"calibrate {check.name}").commit
    frozen_thresholds.freeze(session.lake, session.plan, kind, check, found, session.writer.run_id, commit)
    assert check.rule.calibrate is not None
    anew = f" anew, because its score is another (it was {before:.9g})" if before is not None else ""
    session.note(
        f"the rule '{check.name}' was set{anew}: `{check.at(found.threshold).keep}` drops {found.n_dropped:,} of "
        f"{found.n:,} {kind}s, {found.n_dropped / max(found.n, 1):.1%}{_asked(check)}. It stays so as the lake grows.",
        once=True,
    )


def _asked(check: Check) -> str:
    """Return what set a calibrated rule's threshold, as a note says it."""
    assert check.rule.calibrate is not None
    drop, wrong = check.rule.calibrate.drop, check.rule.calibrate.wrong
    return f" where {drop:.1%} was asked for" if drop is not None else f", to accept {wrong:.0%} of wrong texts"
