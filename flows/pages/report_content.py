"""Collect what a report shows: figures from the catalog, laid out charts, and pictures."""

import json
from typing import Any

import yaml

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.figures import association_audit, report
from pairmill.catalog.queries.figures.canary_rates import canary_rates
from pairmill.catalog.queries.figures.histogram import Histogram, histograms, length_histograms, similarity_histograms
from pairmill.catalog.queries.figures.token_usage import by_step
from pairmill.catalog.queries.gallery import picture_strips
from pairmill.catalog.queries.gallery.gallery_file import temporary_gallery_file
from pairmill.catalog.queries.gallery.gallery_query import Choice, Gallery
from pairmill.catalog.queries.losses.failed_rules import failed_rules
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.write import runs
from pairmill.flows.pages.charts import cluster_sizes
from pairmill.flows.pages.report_funnel import funnels
from pairmill.flows.pages.report_names import names_of_pairs
from pairmill.flows.pages.report_pictures import IMAGES, pictures_shown

SECTIONS = {
    "dropped": "Rules, and what they drop", "funnel": "Funnel", "pairs": "Pairs", "extremes": "Best and worst",
    "duplicates": "Duplicates", "clusters": "Clusters", "changes": "Since the version before",
    "breakdown": "By source", "scores": "Other scores", "balance": "Balance", "association": "Association",
    "texts": "Texts", "quarantine": "Quarantine", "steps": "Work and cost", "reproduce": "To make it again",
}  # fmt: skip


def content(lake: Lake, dataset: Dataset) -> dict[str, Any]:
    """Query the template's variables."""
    plan = report.plan_of(lake, dataset)
    with temporary_gallery_file(lake, dataset, IMAGES) as path, Gallery(path) as gallery:
        shown = pictures_shown(lake, dataset, plan, gallery)
        breakdown = picture_strips.breakdown(gallery)
        n_images = gallery.count(Choice())
    with lake.one_snapshot():  # else each of some 50 statements looks for the newest snapshot, for 3 ms
        measured = {
            **_measured(lake, dataset, plan),
            **_produced(lake, dataset, plan),
            "audit": _audit(lake, dataset, plan),
            "names": names_of_pairs(lake, dataset, plan.recipe.seed),
            "demo_weights": dataset.demo_weights(lake),
        }
    empty = {name for name in ("clusters", "changes") if not shown[{"changes": "before"}.get(name, name)]}
    empty |= set() if any(by_rule.get("") for by_rule in measured["histograms"].values()) else {"scores"}
    return {
        "sections": [(name, title) for name, title in SECTIONS.items() if name not in empty],
        "dataset": dataset,
        "recipe": plan.recipe,
        "n_images": n_images,
        "is_sample": any(rows[0]["n_in"] > n_images for kind, rows in measured["funnels"].items() if kind == "image"),
        "breakdown": {name: rows for name, rows in breakdown.items() if any(row["value"] for row in rows)},
        **shown,
        **measured,
    }


def _measured(lake: Lake, dataset: Dataset, plan: Plan) -> dict[str, Any]:
    """Query counts and distributions."""
    recipe = plan.recipe
    n_clusters, sizes = report.cluster_sizes(lake, dataset, plan) if recipe.balance.cap is not None else (0, [])
    return {
        "totals": report.totals(lake, dataset),
        "funnels": funnels(lake, dataset, recipe),
        "overlapping": [each for each in failed_rules(lake, dataset) if any(each.shared.values())],
        "histograms": _by_rule(histograms(lake, plan, dataset.commit)),
        "cluster_sizes": cluster_sizes(n_clusters, sizes, recipe.balance.cap or 1),
        "duplicates": report.duplicates(lake, dataset),
        "sentence_groups": report.sentence_groups(lake, dataset) if recipe.sentence_duplicates else {},
        "pair_charts": similarity_histograms(lake, dataset),
        "length_charts": length_histograms(lake, dataset),
    }


def _by_rule(found: list[Histogram]) -> dict[str, dict[str, list[Histogram]]]:
    """Group histograms by kind, then by rule; '' for scores that no rule reads."""
    grouped: dict[str, dict[str, list[Histogram]]] = {"image": {}, "sentence": {}}
    for each in found:
        grouped[each.kind].setdefault(each.quantity.rule, []).append(each)
    return grouped


def _audit(lake: Lake, dataset: Dataset, plan: Plan) -> dict[str, Any]:
    """Query the audit of the association."""
    given, own = association_audit.own_document(lake, dataset)
    return {
        "reuse": association_audit.reuse(lake, dataset),
        "ranks": [row for row in association_audit.by_rank(lake, dataset) if row["n"]],
        "gap": association_audit.modality_gap(lake, dataset, plan),
        "given": given,
        "own": own,
        "canaries": canary_rates(lake, dataset),
    }


def _produced(lake: Lake, dataset: Dataset, plan: Plan) -> dict[str, Any]:
    """Query the cost of each step, the quarantine, and the recipe and scorers that reproduce the version."""
    scorers = [_scorer(row) for row in report.scorers(lake, dataset)]
    return {
        "recipe_yaml": _yaml(dataset.recipe),
        "generated": report.generated(lake, dataset, plan),
        "quarantine": report.quarantine(lake, dataset),
        "steps": report.steps(lake, dataset),
        "usage": by_step(lake, dataset.commit),
        "noted_runs": runs.noted(lake, dataset.created_at),
        "scorers": scorers,
        "libraries": {name: version for each in scorers for name, version in each["libraries"].items()},
    }


def _scorer(row: dict[str, Any]) -> dict[str, Any]:
    """Parse a scorer's settings and libraries."""
    return {**row, "settings": json.loads(row["settings"]), "libraries": json.loads(row["libraries"])}


def _yaml(recipe: str) -> str:
    """Format a recipe's JSON as YAML."""
    return yaml.safe_dump(json.loads(recipe), sort_keys=False, allow_unicode=True, width=100)
