"""Calibrate: give the rules that are to drop a share their numbers, as soon as all that they compare is there."""

from pairmill.catalog.pending import frozen_thresholds
from pairmill.catalog.pending.frozen_thresholds import FrozenThreshold
from pairmill.catalog.recipe.plan import Check
from pairmill.catalog.terms.score import Stage
from pairmill.tasks.run.session import Session

# What the cut keeps by now: of these, where a rule has no number yet, the first wave made texts.
KEPT = "(SELECT image_id, sha256 FROM cut_images WHERE dropped_by = '')"


def calibrate(session: Session, kind: str, stage: Stage) -> None:
    """Set the numbers of the rules on ``kind`` that apply by ``stage``, in their order: what the lake has frozen, else
    what is found now. All its scores of earlier stages must be there; a survey goes on with what those that are
    there come to. A rule that nothing reaches with a value stays without."""
    for check in frozen_thresholds.unset(session.plan, kind, stage):
        _set(session, kind, check, "")


def calibrate_late(session: Session) -> None:
    """Set the numbers of the rules on generated texts, over the images of the last cut: a sample by hash."""
    for check in frozen_thresholds.unset(session.plan, "image", None):
        _set(session, "image", check, KEPT)


def _set(session: Session, kind: str, check: Check, among: str) -> None:
    found = frozen_thresholds.frozen(session.lake, frozen_thresholds.digest(session.plan, kind, check))
    if found is None:
        found = frozen_thresholds.measured(session.lake, session.plan, kind, check, among)
        if found is None:
            return
        new = found
        session.compute(f"calibrate {check.name}", new.n, lambda: _freeze(session, kind, check, new))
    session.plan = session.plan.with_threshold(kind, check.name, found.threshold)


def _freeze(session: Session, kind: str, check: Check, found: FrozenThreshold) -> None:
    before = frozen_thresholds.by_other_scorers(session.lake, kind, check)
    commit = session.begin(f"calibrate {check.name}").commit
    row = frozen_thresholds.row(session.plan, kind, check, found, session.writer.run_id, commit)
    marks = ", ".join("?" * len(row))
    session.lake.retrying(lambda: session.lake.execute(f"INSERT INTO thresholds VALUES ({marks})", row))
    assert check.rule.calibrate is not None
    anew = f" anew, because its score is another (it was {before:.9g})" if before is not None else ""
    session.note(
        f"the rule '{check.name}' was set{anew}: `{check.at(found.threshold).keep}` drops {found.n_dropped:,} of "
        f"{found.n:,} {kind}s, {found.n_dropped / found.n:.1%} where {check.rule.calibrate.drop:.1%} was asked for. It "
        "stays so as the lake grows.",
        once=True,
    )
