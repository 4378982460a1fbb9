"""Query the content of a dataset version's report: figures, its funnel, and pictures."""

import json
from collections import defaultdict
from typing import Any

import yaml

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries import datasets
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.figures import association_audit, pair_sample, report
from pairmill.catalog.queries.figures.canary_rates import canary_rates, wrong_pairs_line
from pairmill.catalog.queries.figures.histogram import Histogram, histograms, length_histograms, similarity_histograms
from pairmill.catalog.queries.figures.lake_status import by_step
from pairmill.catalog.queries.gallery import gallery_views
from pairmill.catalog.queries.gallery.gallery_file import temporary_gallery_file
from pairmill.catalog.queries.gallery.gallery_query import Choice, Gallery
from pairmill.catalog.queries.losses.rule_losses import failed_rules
from pairmill.catalog.recipe.parts import RESERVED, Duplicates
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms import text_columns
from pairmill.catalog.write import runs
from pairmill.flows.api.report_pictures import IMAGES, pictures_shown
from pairmill.ops.text.words import names

NAMED_PAIRS = 2_000  # whose texts are searched for names; RealSyn: 1M
_STEPS = {
    "readable": "its pixels decode",
    "exact_duplicate": "not byte for byte one that is kept",
    "no_text": "one of its candidate sentences passes",
    "max_uses": "a sentence is left for it",
    "same_text": "not a text that was there before",
}


def report_content(lake: Lake, dataset: Dataset) -> dict[str, Any]:
    """Return the variables of a version's report by their names in its templates: figures, funnels, pictures."""
    plan = report.plan_of(lake, dataset)
    with temporary_gallery_file(lake, dataset, IMAGES) as path, Gallery(path) as gallery:
        found = pictures_shown(lake, dataset, plan, gallery)
        breakdown = gallery_views.breakdown(gallery)
        n_images = gallery.count(Choice())
    with lake.one_snapshot():  # else each of some 50 statements looks for the newest snapshot, for 3 ms
        found |= _query_measurements(lake, dataset, plan) | _query_production(lake, dataset, plan)
        found["audit"] = _query_audit(lake, dataset, plan)
        found["names"] = _count_names(lake, dataset, plan.recipe.seed)
        found["demo_weights"] = dataset.demo_weights(lake)
    found["is_sample"] = any(rows[0]["n_in"] > n_images for kind, rows in found["funnels"].items() if kind == "image")
    found["breakdown"] = {name: rows for name, rows in breakdown.items() if any(row["value"] for row in rows)}
    return found | {"dataset": dataset, "recipe": plan.recipe, "n_images": n_images}


def _query_measurements(lake: Lake, dataset: Dataset, plan: Plan) -> dict[str, Any]:
    """Query counts and distributions; histograms by kind, then by rule, '' for scores that no rule reads."""
    recipe = plan.recipe
    n_clusters, sizes = report.cluster_sizes(lake, dataset, plan) if recipe.balance.cap is not None else (0, [])
    by_rule: dict[str, dict[str, list[Histogram]]] = {"image": {}, "sentence": {}}
    for each in histograms(lake, plan, dataset.commit):
        by_rule[each.kind].setdefault(each.quantity.rule, []).append(each)
    return {
        "totals": report.totals(lake, dataset),
        "funnels": _funnels(lake, dataset, recipe),
        "overlapping": [each for each in failed_rules(lake, dataset) if any(each.shared.values())],
        "histograms": by_rule,
        "size_sample": (n_clusters, sizes, recipe.balance.cap or 1),
        "duplicates": report.duplicates(lake, dataset),
        "sentence_groups": report.sentence_groups(lake, dataset) if recipe.sentence_duplicates else {},
        "pair_charts": similarity_histograms(lake, dataset),
        "length_charts": length_histograms(lake, dataset),
    }


def _query_audit(lake: Lake, dataset: Dataset, plan: Plan) -> dict[str, Any]:
    """Query the audit of the association."""
    given, own = association_audit.own_document(lake, dataset)
    return {
        "reuse": association_audit.reuse(lake, dataset),
        "ranks": [row for row in association_audit.by_rank(lake, dataset) if row["n"]],
        "gap": association_audit.modality_gap(lake, dataset, plan),
        "given": given,
        "own": own,
        "canaries": canary_rates(lake, dataset),
        "wrong_pairs": wrong_pairs_line(lake, dataset),
    }


def _query_production(lake: Lake, dataset: Dataset, plan: Plan) -> dict[str, Any]:
    """Query the cost of each step, the quarantine, and the recipe and scorers that reproduce the version."""
    scorers = [row | {name: json.loads(row[name]) for name in ("settings", "libraries")}
               for row in report.scorers(lake, dataset)]  # fmt: skip
    return {
        "recipe_yaml": yaml.safe_dump(json.loads(dataset.recipe), sort_keys=False, allow_unicode=True, width=100),
        "generated": report.generated(lake, dataset, plan),
        "quarantine": report.quarantine(lake, dataset),
        "steps": report.steps(lake, dataset),
        "usage": by_step(lake, dataset.commit),
        "noted_runs": runs.runs_with_notes(lake, dataset.created_at),
        "scorers": scorers,
        "libraries": {name: version for each in scorers for name, version in each["libraries"].items()},
    }


def _funnels(lake: Lake, dataset: Dataset, recipe: Recipe) -> dict[str, list[dict[str, Any]]]:
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
    """Format the condition under which two images are duplicates."""
    phash = "" if duplicates.phash is None else f"phash within {duplicates.phash} bits"
    cosine = "" if duplicates.cosine is None else f"cosine from {duplicates.cosine:g} on"
    return ", or ".join(filter(None, (phash, cosine)))


def _share(part: int, total: int) -> float:
    """Return a percentage, 0 for an empty total."""
    return round(100 * part / total, 3) if total else 0.0


def _count_names(lake: Lake, dataset: Dataset, seed: int) -> dict[str, Any]:
    """Count the distinct names by kind of text in the first NAMED_PAIRS pairs of the report's sample."""
    rows = pair_sample.sample(lake, dataset, seed, NAMED_PAIRS)
    texts = {
        "sentences": [row[name] for row in rows for name in text_columns.texts(dataset.n_texts)],
        "captions": [row["caption"] for row in rows],
        "fused texts": [row["syn_text"] for row in rows],
    }
    found = {kind: set().union(*(names(text) for text in of_kind if text)) for kind, of_kind in texts.items()
             if any(of_kind)}  # fmt: skip
    return {"pairs": len(rows), "found": {kind: len(all_) for kind, all_ in found.items()}}
