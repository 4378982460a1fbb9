"""Count the images that each rule of a version drops or would drop, and find rules that drop nothing, all, or too much.

`decisions.dropped_by` names the first rule that an image fails; `decisions.failed` holds all of them as bits. An early
rule has a bit wherever its scores exist, even behind a rule that dropped the image. Duplicates, missing texts, rules on
generated texts and the cap are decided only for the remaining images, so they have a bit only if they dropped it.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.quarantine import FaultCount
from pairmill.catalog.queries.datasets import Dataset, FunnelStep, funnel
from pairmill.catalog.queries.figures.histogram import quantiles
from pairmill.catalog.recipe.plan import Check, Plan, quantities

# With fewer than LEAST items, a share means nothing unless all are dropped. Dropping nine of ten is rarely intended.
# Dropping none of fewer than LEAST_KEPT items is no surprise: a first folder would have a note for half of its rules.
LEAST, LEAST_KEPT, MOST = 100, 1000, 0.9
SHOWN = (0.01, 0.1, 0.5, 0.9, 0.99)
# A cap is chosen for millions of pictures: with more than SMALL the recipe's author knows that it drops most.
SMALL, MOST_BY_CAP = 100_000, 0.3


@dataclass(frozen=True)
class IdleRule:
    """A rule that drops suspiciously few or many: ``n_dropped`` of ``n_in`` items of ``kind``.

    ``values``: label of the quantity -> its quantiles at the shares SHOWN; {} for a rule without a threshold.
    """

    kind: str
    rule: str
    n_in: int
    n_dropped: int
    values: dict[str, tuple[float, ...]]

    def __str__(self) -> str:
        what = "all" if self.n_dropped == self.n_in else f"{self.n_dropped:,} of" if self.n_dropped else "none of"
        shown = "; ".join(
            f"{label} is {', '.join(f'{value:.4g} at {share:.0%}' for share, value in zip(SHOWN, values, strict=True))}"
            for label, values in self.values.items()
        )
        met = f": {shown}" if shown else ""
        return (
            f"the rule '{self.rule}' drops {what} {self.n_in:,} {self.kind}s{met}. A rule belongs to one model and one "
            f"corpus: change {self.kind}s.{self.rule}.keep, or take the rule out."
        )


@dataclass(frozen=True)
class RuleFailures:
    """Counts of the images that fail one step of a version's funnel."""

    rule: str  # the step's name in the funnel
    first: int  # images that the step dropped, as the funnel counts them
    failed: int  # images that fail it, whether or not an earlier step dropped them
    alone: int  # images that fail this step only: without it, they would reach the later steps
    shared: dict[str, int]  # rule -> images that fail both, for each other rule


def idle_rules(lake: Lake, plan: Plan, dataset: Dataset) -> list[IdleRule]:
    """Return the rules of a version whose threshold does not suit the data: they drop all, nothing, or more than MOST.

    A rule that drops all is returned for any number of items, others only if they have a threshold and at least LEAST
    items, or LEAST_KEPT if they drop nothing, which is no fault of a rule without a number (`not has_url`).
    """
    found = []
    for step in funnel(lake, dataset):
        checks = [] if step.rule == "readable" else plan.checks(step.kind)
        check = next((each for each in checks if each.name == step.rule), None)
        takes_all = step.n_in == step.n_dropped > 0
        least = LEAST if step.n_dropped else LEAST_KEPT
        if check is None or (not takes_all and (step.n_in < least or 0 < step.n_dropped <= MOST * step.n_in)):
            continue
        values = _values(lake, plan, step.kind, check, dataset.commit)
        if values or takes_all:
            found.append(IdleRule(step.kind, step.rule, step.n_in, step.n_dropped, values))
    return found


def _values(lake: Lake, plan: Plan, kind: str, check: Check, upto: int) -> dict[str, tuple[float, ...]]:
    """Return, for each quantity with a threshold that the rule compares, its displayed form -> quantiles at SHOWN."""
    tables = plan.image_tables if kind == "image" else plan.sentence_tables
    types = {column: sql_type for table in tables for column, sql_type in table.columns.items()}
    compared = [each for each in quantities(check, types) if each.low is not None or each.high is not None]
    measured = {each.label: quantiles(lake, plan, each, kind, SHOWN, upto) for each in compared}
    return {label: values for label, values in measured.items() if values}


def heavy_losses(lake: Lake, plan: Plan, steps: list[FunnelStep], n_pairs: int) -> list[str]:
    """Return notes for users: losses of a small lake to balance, lost duplicate groups, sentences that all fail.

    Reads the tables of the last cut; ``steps`` is its funnel, ``n_pairs`` its number of pairs.
    """
    is_lost = not n_pairs and plan.recipe.association.at_least
    without_text = _no_sentence(lake, plan, steps) if is_lost else ""
    return [note for note in (_note_loss_to_cap(lake, plan, steps), _note_lost_groups(lake), without_text) if note]


def _note_lost_groups(lake: Lake) -> str:
    """Return the note on duplicate groups whose best picture a later rule drops, so that none stands in; else ''."""
    best = "SELECT DISTINCT better AS n FROM cut_dropped WHERE rule = 'duplicate'"
    lost = lake.query(f"""SELECT dropped_by, count(*) FROM cut_fates SEMI JOIN ({best}) USING (n)
        WHERE dropped_by NOT IN ('', 'balance') GROUP BY dropped_by ORDER BY count(*) DESC, dropped_by""")
    if not lost:
        return ""
    groups = lake.query(f"SELECT count(*) FROM ({best})")[0][0]
    by_rule = ", ".join(f"{rule} {n:,}" for rule, n in lost)
    return (
        f"{sum(n for _, n in lost):,} of {groups:,} duplicate groups are lost whole: a later rule drops the "
        f"picture that stands for the group ({by_rule})."
    )


def _note_loss_to_cap(lake: Lake, plan: Plan, steps: list[FunnelStep]) -> str:
    """Return the note on a cap that drops more than MOST_BY_CAP of at most SMALL pictures; '' otherwise."""
    step = next((each for each in steps if (each.kind, each.rule) == ("image", "balance")), None)
    cap = plan.recipe.balance.cap
    if cap is None or step is None or step.n_in > SMALL or step.n_dropped <= MOST_BY_CAP * step.n_in:
        return ""
    clusters = lake.query("SELECT count(DISTINCT cluster) FROM cut_capped WHERE cluster IS NOT NULL")[0][0]
    return (
        f"{clusters:,} cluster{'s' * (clusters > 1)}, cap {cap:,}: {step.n_dropped:,} of {step.n_in:,} pictures fall "
        "to balance. Keep all with --set balance.cap=none, or use the recipe folder."
    )


def _no_sentence(lake: Lake, plan: Plan, steps: list[FunnelStep]) -> str:
    """Return the note on a lake whose pictures have no sentence, caption included; '' where one is left."""
    pictures = [each for each in steps if each.kind == "image"]
    sentences = [each for each in steps if each.kind == "sentence"]
    if not pictures or not pictures[0].n_in or not sentences or sentences[-1].n_in - sentences[-1].n_dropped:
        return ""
    recaption = f"describe the pictures: pairmill recaption --lake {shlex.quote(lake.uri)} --to captions"
    if not sentences[0].n_in:
        return f"no sentences in these sources: nothing can be associated with the {pictures[0].n_in:,} pictures. " + (
            f"Add pages or captions, or {recaption}"
            if plan.recipe.captions.own is None
            else "With `captions.own` captions are none; to keep pictures without: --set association.at_least=0"
        )
    rules = {check.name for check in plan.sentence_checks}
    by_rule = sorted((each for each in sentences if each.n_dropped and each.rule in rules), key=lambda s: -s.n_dropped)
    n = sum(each.n_dropped for each in by_rule)
    shares = ", ".join(f"{each.n_dropped:,} by '{each.rule}'" for each in by_rule)
    return (
        f"none of {n:,} different sentences is left: {shares}. Change sentences.{by_rule[0].rule}.keep, or {recaption}"
    )


def failed_rules(lake: Lake, dataset: Dataset) -> list[RuleFailures]:
    """Return, for each step on images in funnel order, how many images of a version fail it, alone and with others.

    One GROUP BY over the version's decisions, which yields at most some hundred distinct sets of rules.
    """
    key = (dataset.name, dataset.version)
    of_images = "dataset = ? AND version = ? AND kind = 'image'"
    sets = lake.query(f"SELECT failed, count(*) FROM decisions WHERE {of_images} GROUP BY failed", key)
    steps = lake.query(f"SELECT position, rule, n_dropped FROM funnel WHERE {of_images} ORDER BY position", key)

    def count(wanted: int) -> int:
        return sum(n for bits, n in sets if bits & wanted == wanted)

    found = []
    for place, rule, n_dropped in steps:
        alone = sum(n for bits, n in sets if bits == 1 << place)
        shared = {other: count(1 << place | 1 << at) for at, other, _ in steps if at != place}
        found.append(RuleFailures(rule, n_dropped, count(1 << place), alone, shared))
    return found


LEAST_LIMIT = 0.2  # the smallest share of all pictures whose loss is called a limit
_REMEDIES = {
    "readable": "they cannot be decoded: `pairmill quarantine` says why",
    "exact_duplicate": "they are copies: other sources add more than other rules",
    "duplicate": "they are near copies: other sources add more than other rules; `pairmill browse` shows the groups",
    "no_text": "no sentence is near enough: add pages with text, or describe the pictures by `pairmill recaption`",
    "max_uses": "other pictures use their sentences up: --set association.max_uses=none lets all share them",
    "left_out": "people left them out: `pairmill edit` lists who did, and undoes it",
    "balance": "their clusters are full: --set balance.cap=none keeps all",
}
_RULE = "`pairmill browse` shows them on both sides of the rule; --set images.{0}.keep=… moves it"


def yield_limit(steps: Sequence[FunnelStep], faults: Sequence[FaultCount]) -> str:
    """Return the sentence on the largest loss of pictures; it says that nothing limited the yield if none is large.

    ``steps`` is a version's funnel. ``faults`` counts the lake's items in quarantine, of which pictures that could not
    be fetched or read have no row in the funnel.
    """
    if not (images := [step for step in steps if step.kind == "image"]):
        return ""
    seen, kept = images[0].n_in, images[-1].n_in - images[-1].n_dropped
    rule = max(images, key=lambda step: step.n_dropped)
    failed = sum(each.items for each in faults)
    if failed > rule.n_dropped and failed >= LEAST_LIMIT * (failed + seen):
        worst = max(faults, key=lambda each: each.items)
        return (
            f"limited most by failures: {failed:,} items beside {seen:,} pictures, most of them by {worst.reason}; "
            f"`pairmill quarantine` lists them, `run --retry {worst.reason}` tries them again."
        )
    if rule.n_dropped < LEAST_LIMIT * seen or not rule.n_dropped:
        return f"nothing limited it: {kept:,} of {seen:,} pictures are in."
    remedy = _REMEDIES.get(rule.rule, _RULE.format(rule.rule))
    return f"limited most by {rule.rule}: {rule.n_dropped:,} of {seen:,} pictures; {remedy}."
