"""Query the content of a dataset version's report: figures, its funnel, and pictures, each shard read once."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries import datasets
from pairmill.catalog.queries.compare.version_diff import Difference, differences, version_before
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.figures import pair_sample, report
from pairmill.catalog.queries.figures.canary_rates import canary_rates, wrong_pairs_line
from pairmill.catalog.queries.figures.histogram import Histogram, histograms, length_histograms, similarity_histograms
from pairmill.catalog.queries.figures.lake_status import by_step
from pairmill.catalog.queries.figures.pair_sample import SetHits, contamination_hits, repeated_texts
from pairmill.catalog.queries.figures.proofs import proofs
from pairmill.catalog.queries.gallery import gallery_views
from pairmill.catalog.queries.gallery.gallery_file import temporary_gallery_file
from pairmill.catalog.queries.gallery.gallery_query import Choice, Gallery
from pairmill.catalog.queries.gallery.gallery_views import beside
from pairmill.catalog.queries.losses.rule_losses import failed_rules
from pairmill.catalog.recipe.parts import RESERVED, Duplicates
from pairmill.catalog.recipe.plan import Plan, quantities
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms import text_columns
from pairmill.catalog.write import runs
from pairmill.tasks.release.gallery.thumbnails import NONE, thumbnail, thumbnails

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
    with temporary_gallery_file(lake, dataset, plan, IMAGES) as path, Gallery(path) as gallery:
        found = pictures_shown(lake, dataset, plan, gallery)
        breakdown = gallery_views.breakdown(gallery)
        n_images = gallery.count(Choice())
    with lake.one_snapshot():  # else each of some 50 statements looks for the newest snapshot, for 3 ms
        found |= _query_measurements(lake, dataset, plan) | _query_production(lake, dataset, plan)
        found["audit"] = _query_audit(lake, dataset)
        found["proofs"] = proofs(lake, dataset)
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


def _query_audit(lake: Lake, dataset: Dataset) -> dict[str, Any]:
    """Query the audit of the association."""
    given, own = pair_sample.own_document(lake, dataset)
    return {
        "reuse": pair_sample.reuse(lake, dataset),
        "ranks": [row for row in pair_sample.by_rank(lake, dataset) if row["n"]],
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


MOST_BYTES = 64 * 2**20  # of a benchmark's picture that is shown
PAIRS_SHOWN = 360
EXTREMES = 10  # pairs shown of each end of a similarity
FIRST = 8  # kept, and dropped, pictures of the first screen
IMAGES = 200_000  # of more decided images a sample is shown and broken down
SHOWN = 6  # pictures of each cause of a difference
CAUSES = 12  # the largest


def pictures_shown(lake: Lake, dataset: Dataset, plan: Plan, gallery: Gallery) -> dict[str, Any]:
    """Return the report's variables with rows of pictures, by name; add ``picture`` and ``lost`` of `thumbnails`."""
    with lake.one_snapshot_if_small():
        before = version_before(lake, dataset)
        fates = gallery_views.by_fate(gallery)
        found = {
            "kept": fates.pop("", []),
            "dropped": fates,
            "distinct": gallery_views.distinct_pictures(gallery),
            "near": _beside_thresholds(plan, gallery),
            "pairs": pair_sample.sample(lake, dataset, plan.recipe.seed, PAIRS_SHOWN),
            "repeated": repeated_texts(lake, dataset),
            "extremes": pair_sample.extremes(lake, dataset, EXTREMES),
            "groups": gallery_views.duplicate_groups(gallery),
            "clusters": _named_clusters(gallery),
            "contaminated": with_benchmark_pictures(contamination_hits(lake, dataset, plan)),
            "before": before,
            "differences": differences(lake, before, dataset, SHOWN, CAUSES) if before else [],
        }
    rows = list(_rows(found))
    wanted = {(row["sha256"], row["shard"]) for row in rows if row["shard"]}
    pictures = thumbnails(lake, sorted(wanted))
    for row in rows:
        row.update(pictures.get(row["sha256"], NONE))
    for pair in found["pairs"]:
        pair["texts"] = [(text, similarity) for _, text, similarity in text_columns.real_texts(pair)]
        pair["is_link"] = (pair["raw_image_url"] or "").startswith(("https://", "http://"))
    names = {"similarities": pair_sample.SIMILARITIES, "compared": pair_sample.COMPARED}
    return found | names | {"first_dropped": _first_dropped(found["dropped"])}


def _beside_thresholds(plan: Plan, gallery: Gallery) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Return by rule, then by side ('below 100', 'from 100'), the pictures nearest to each of its thresholds."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for check in plan.image_checks:
        if set(check.columns) <= gallery.types.keys():
            for quantity in quantities(check, gallery.types):
                found.setdefault(check.name, {}).update(beside(gallery, quantity))
    rows = [row for sides in found.values() for side in sides.values() for row in side]
    shards = gallery.shards([row["sha256"] for row in rows])
    for row in rows:
        row["shard"] = shards.get(row["sha256"], "")
    return found


def _named_clusters(gallery: Gallery) -> list[dict[str, Any]]:
    """Return the largest clusters with kept pictures and a name."""
    found = gallery_views.clusters(gallery)
    named = gallery.cluster_names([each["cluster"] for each in found])
    return [{**each, "name": named[each["cluster"]]} for each in found]


def _first_dropped(dropped: Mapping[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return FIRST dropped pictures, of each rule in turn, without the pictures that do not decode."""
    dropped = {rule: rows for rule, rows in dropped.items() if rule != "readable"}
    longest = max(map(len, dropped.values()), default=0)
    return [rows[n] for n in range(longest) for rows in dropped.values() if n < len(rows)][:FIRST]


def _rows(found: Any) -> Iterator[dict[str, Any]]:
    """Yield every row of a picture within lists, mappings and differences."""
    if isinstance(found, Difference):
        yield from found.images
    elif isinstance(found, SetHits):
        yield from found.hits
    elif isinstance(found, dict) and "sha256" in found:
        yield found
    elif isinstance(found, dict):
        for value in found.values():
            yield from _rows(value)
    elif isinstance(found, list | tuple):
        for value in found:
            yield from _rows(value)


def with_benchmark_pictures(found: list[SetHits]) -> list[SetHits]:
    """Add the benchmark's picture to each hit, in place, as ``benchmark``: its ``name``, ``picture`` and ``lost``."""
    for each in found:
        for hit in each.hits:
            hit["benchmark"] = {"name": Path(hit["file"]).name, **_embed_file(Path(hit["file"]))}
    return found


def _embed_file(file: Path) -> dict[str, Any]:
    """Return a small picture of a file. The benchmark need not be on the machine that writes the report."""
    try:
        if file.stat().st_size > MOST_BYTES:
            return NONE | {"lost": "too large"}
        return NONE | {"picture": thumbnail(file.read_bytes())}
    except OSError:
        return NONE | {"lost": "not on this machine"}
