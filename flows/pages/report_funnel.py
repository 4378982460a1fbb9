"""Lay out the funnel of a report: each rule with its condition, and what it dropped."""

from collections import defaultdict
from typing import Any

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries import datasets
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.recipe.parts import RESERVED, Duplicates
from pairmill.catalog.recipe.recipe import Recipe

_STEPS = {
    "readable": "its pixels decode",
    "exact_duplicate": "not byte for byte one that is kept",
    "no_text": "one of its candidate sentences passes",
    "max_uses": "a sentence is left for it",
    "same_text": "not a text that was there before",
}


def funnels(lake: Lake, dataset: Dataset, recipe: Recipe) -> dict[str, list[dict[str, Any]]]:
    """Return the funnel's rows by kind: rule, condition, items in, dropped and left, and percentages of the first."""
    asks = _STEPS | {
        "duplicate": f"the best of its group ({_alike(recipe.duplicates)})",
        "balance": f"among the {recipe.balance.cap} drawn of its cluster",
    }
    if (n := recipe.association.at_least) > 1:
        asks |= {"no_text": f"{n} of its candidate sentences pass", "max_uses": f"{n} sentences are left for it"}
    asks |= {rule.name: rule.predicate + rule.remark for rule in (*recipe.images, *recipe.sentences)}
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for step in datasets.funnel(lake, dataset):
        rows = found[step.kind]
        total = rows[0]["n_in"] if rows else step.n_in
        left = step.n_in - step.n_dropped
        share = {"left_share": _share(left, total), "dropped_share": _share(step.n_dropped, total)}
        said = asks.get(step.rule, "")
        if (step.kind, step.rule) == ("sentence", "duplicate"):
            said = "the smallest content id of its group: the other sentences of the group fall, their pictures get it"
        rule = {"rule": step.rule, "asks": said, "is_sql": step.rule not in RESERVED}
        rows.append({**rule, "n_in": step.n_in, "n_dropped": step.n_dropped, "left": left, **share})
    return dict(found)


def _alike(duplicates: Duplicates) -> str:
    """Format when two images are duplicates."""
    phash = "" if duplicates.phash is None else f"phash within {duplicates.phash} bits"
    cosine = "" if duplicates.cosine is None else f"cosine from {duplicates.cosine:g} on"
    return ", or ".join(filter(None, (phash, cosine)))


def _share(part: int, total: int) -> float:
    """Return a percentage, 0 for an empty total."""
    return round(100 * part / total, 3) if total else 0.0
