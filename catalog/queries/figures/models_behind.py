"""Find the scorers with models behind a rule's scores: what its threshold is valid for."""

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.figures.report import plan_of
from pairmill.catalog.recipe.plan import Check


def models_behind(lake: Lake, dataset: Dataset, check: Check) -> dict[str, str]:
    """Return the digests, by name, of the scorers that have a model and from which the rule's scores were made.

    Scorers without a model, such as clusters, differ between lakes and say nothing of the scores' scale. A name that
    several of them have is left out: of several captioners, none is named.
    """
    plan = plan_of(lake, dataset)
    asked = {digest for table in check.tables for digest in plan.made_by(table) if digest}
    rows = lake.query("SELECT digest, name, model, made_from FROM scorers")
    known = {digest: (name, model, made_from) for digest, name, model, made_from in rows}
    reached: set[str] = set()
    while asked := {each for each in asked - reached if each in known}:
        reached |= asked
        asked = {source for each in asked for source in known[each][2] or ()}
    found = sorted((known[each][0], each) for each in reached if known[each][1])
    names = [name for name, _ in found]
    return {name: digest for name, digest in found if names.count(name) == 1}


def stored_scorers(lake: Lake, dataset: Dataset) -> dict[str, str]:
    """Return the digests of the version's scorers by name."""
    return dict(lake.query("SELECT name, digest FROM scorers WHERE list_contains(?, digest)", (dataset.scorers,)))
