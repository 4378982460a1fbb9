"""Tell which steps of a version read scores that were forgotten since it was published."""

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.figures.report import plan_of
from pairmill.catalog.recipe.plan import Check, Plan
from pairmill.catalog.terms.score import Stage

STEP = "forget "  # then the scorer's digest: the step's name in `commits`
# Tables that steps of the cut read besides the rules' scores.
_OF_STEPS = {
    "image_groups": ("duplicate",),
    "match_candidates": ("no_text", "texts"),
    "sentence_groups": ("no_text", "texts"),
    "captions": ("captions",),
    "synthetic": ("synthetic texts",),
    "tags": ("tags",),
}


def steps_reading(lake: Lake, dataset: Dataset, digests: set[str]) -> tuple[str, ...]:
    """Return the rules and steps of a version that read rows of these scorers, in the order of the cut."""
    captioners = lake.query(
        "SELECT scorer, similarity_scorer FROM dataset_captioners WHERE dataset = ? AND version = ?",
        (dataset.name, dataset.version),
    )
    used = {*dataset.scorers, *(digest for row in captioners for digest in row)}
    if digests.isdisjoint(used):
        return ()
    plan = plan_of(lake, dataset)
    names = {
        name for (name,) in lake.query("SELECT name FROM scorers WHERE digest IN (SELECT unnest(?))", ([*digests],))
    }
    found = [each.name for each in _checks(plan) if any(digests.intersection(plan.made_by(t)) for t in each.tables)]
    for table, steps in _OF_STEPS.items():
        if digests.intersection(plan.made_by(table)):
            found += steps
    if "balance_clusters" in names and plan.recipe.balance.cap is not None:
        found.append("balance")
    if "matches" in names:
        found += ["no_text", "texts"]
    return tuple(dict.fromkeys(found))


def _checks(plan: Plan) -> list[Check]:
    """Return the compiled rules of a plan: on images, sentences and candidates."""
    return [*plan.image_checks, *plan.sentence_checks, *plan.candidate_checks]


def steps_in_doubt(lake: Lake, dataset: Dataset) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the steps of a version that read forgotten rows, and all rules on images that still can be checked.

    A rule can be checked if no step before it has lost rows: an item that it drops has passed the earlier ones.
    """
    gone = forgotten(lake, dataset)
    if not gone:
        return (), ()
    steps = steps_reading(lake, dataset, gone)
    if not steps:
        return (), ()
    sound = []
    for check in plan_of(lake, dataset).image_checks:
        if check.name in steps or check.stage >= Stage.CAPTION:
            break
        sound.append(check.name)
    return steps, tuple(sound)


def forgotten(lake: Lake, dataset: Dataset) -> set[str]:
    """Return the digests of the scorers whose rows were forgotten after the version was published."""
    sql = 'SELECT step FROM commits WHERE starts_with(step, ?) AND "commit" > ?'
    return {step.removeprefix(STEP) for (step,) in lake.query(sql, (STEP, dataset.commit))}
