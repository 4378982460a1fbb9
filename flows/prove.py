"""Prove dataset versions: list their pairs, embed these by a judge, train heads on them, record what came out."""

import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.proof_pairs import failed_rules, list_pairs
from pairmill.catalog.queries import datasets
from pairmill.catalog.queries.compare.trial_cut import cut_plan
from pairmill.catalog.queries.figures.proofs import Proof
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write.acts import pictures_in
from pairmill.catalog.write.lease import writing
from pairmill.catalog.write.runs import record_proof
from pairmill.flows.run.outcome import report_path
from pairmill.flows.run.run_start import session_on
from pairmill.flows.run.settings import Compute
from pairmill.ops.whole.cut_trials import FEWEST, SEEDS
from pairmill.tasks.compare_cuts import compare, price_rules, read_pool
from pairmill.tasks.measure.judge_features import judge_features, judge_plan
from pairmill.tasks.run.place.progress import ShowProgress, not_shown


def prove(
    lake: Lake, specs: Sequence[str], judge: str, seeds: int = SEEDS, right: str = "", rules: bool = False,
    tell: Callable[[str], None] = lambda line: None, compute: Compute | None = None, progress: ShowProgress = not_shown,
) -> list[Proof]:  # fmt: skip
    """Prove versions of a lake that is open for writing, and record the proofs; return them in the order of ``specs``.

    The lake's lease is held while features are computed and while the proofs are stored, not while heads train.
    ``judge`` is the spec of a CLIP that made no score of the versions, ``seeds`` the number of paired trainings.
    ``right`` is a file of the pictures whose raw pair is known to be right, as `pairmill edit --list` reads it; '' if
    no truth is known. ``rules`` prices each rule on pictures too (`tasks.compare_cuts.price_rules`). ``tell`` gets
    lines on power and progress, ``progress`` a `Progress` while the judge's features are computed.

    Raises PairmillError if there are fewer than SEEDS seeds, too few pairs or texts, or the judge is the filter's own;
    ModelError if it is missing, LeaseHeld if another process writes to the lake.
    """
    if seeds < SEEDS:
        raise PairmillError(f"--seeds {seeds}: an interval over so few is too wide to tell; give {SEEDS} or more.")
    versions = list(dict.fromkeys(datasets.find(lake, spec) for spec in specs))
    plan = judge_plan(lake, versions, judge)
    known = pictures_in(lake, Path(right)) if right else None
    named = {str(each): each.where for each in versions}
    counts = list_pairs(lake, cut_plan(lake, versions[0]), named, known)
    for each in versions:
        if (n := counts.get(str(each), 0)) < 2 * FEWEST:
            raise PairmillError(f"{each} has {n} pairs with a text; a proof needs {2 * FEWEST} at the least.")
    with session_on(lake, (plan, []), compute or Compute.model_validate({}), "prove") as session:
        session.progress = progress
        scorers = judge_features(session)
    pool, arms, ids = read_pool(lake, scorers, judge)
    lines = compare(pool, arms, seeds, tell)
    for each in versions if rules else ():
        names = [rule.name for rule in Recipe.model_validate_json(each.recipe).images]
        lines[str(each)] += price_rules(pool, failed_rules(lake, each.where, names, ids), seeds, tell)
    head = (judge, seeds, len(pool.raw), int(pool.kinds.max()) + 1, datetime.now(UTC).replace(microsecond=0))
    found = [Proof(str(each), *head, tuple(lines[str(each)])) for each in versions]
    with writing(lake, uuid.uuid4().hex, "prove", 60.0):
        for each, proof in zip(versions, found, strict=True):
            record_proof(lake, (each.name, each.version), head, [tuple(vars(line).values()) for line in proof.lines])
            report_path(lake.uri, each).unlink(missing_ok=True)  # the next reader writes it, with the proof
    return found
