"""Tell which rules and steps of a version read the rows of a scorer."""

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.figures.report import plan_of

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
    checks = [*plan.image_checks, *plan.sentence_checks, *plan.candidate_checks]
    found = [each.name for each in checks if any(digests.intersection(plan.made_by(t)) for t in each.tables)]
    for table, steps in _OF_STEPS.items():
        if digests.intersection(plan.made_by(table)):
            found += steps
    if "balance_clusters" in names and plan.recipe.balance.cap is not None:
        found.append("balance")
    if "matches" in names:
        found += ["no_text", "texts"]
    return tuple(dict.fromkeys(found))
