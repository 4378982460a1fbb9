"""Publish a version by changed rules from the scores that a lake holds (a re-cut); no model is loaded."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pairmill.catalog.cut import publication
from pairmill.catalog.cut.cut import count_cut, cut
from pairmill.catalog.cut.edits import with_kept
from pairmill.catalog.cut.publication import Published
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.score_tables import undeclared
from pairmill.catalog.pending import frozen_thresholds
from pairmill.catalog.queries import datasets
from pairmill.catalog.queries.compare import trial_cut
from pairmill.catalog.queries.datasets import Dataset, FunnelStep, find
from pairmill.catalog.queries.gallery.marginal_items import MarginalItem, marginal_items
from pairmill.catalog.recipe import predicate
from pairmill.catalog.recipe.plan import Plan, compile_plan, tables_of
from pairmill.catalog.recipe.recipe import Recipe, refuse_other_scorers
from pairmill.catalog.terms.counted import counted
from pairmill.catalog.terms.declared import declared
from pairmill.catalog.terms.error import BadRecipe, NoPairs
from pairmill.catalog.terms.scores import imported_in, named_in
from pairmill.catalog.write import runs
from pairmill.catalog.write.import_scores import with_imported
from pairmill.catalog.write.lease import writing
from pairmill.ops.whole.components import components

TRIED = "try"  # name of the rule of `recut --try`
# Settings that only the cut reads. Any other setting may change a score.
OF_THE_CUT = ("images", "sentences", "candidates", "imported", "association.rank_by", "association.max_uses",
              "association.at_least", "balance.cap", "contamination.phash", "contamination.cosine", "splits",
              "split_by", "sizes")  # fmt: skip


@dataclass(frozen=True)
class CutTrial:
    """Result of a re-cut that is not published."""

    before: Dataset  # the version whose recipe is changed
    images: int  # current images of the lake
    # the scores that a run must compute first, with their cost. If there are any, the cut counts images without them as
    # dropped by the rule that reads them, and images without texts as passing.
    missing: list[trial_cut.MissingScore]
    kept: int  # images that the cut keeps
    kept_before: int  # images that a cut by the version's own recipe keeps today
    # (rule that drops them before, rule after, number of images) where the two differ, '' for kept, most frequent first
    moved: list[tuple[str, str, int]]
    funnel: list[FunnelStep]  # images that each rule receives and drops, in the order of the cut
    funnel_before: list[FunnelStep]  # the same for the version ``before``
    marginal: list[MarginalItem]  # the images nearest each threshold


def recut(lake: Lake, spec: str, changes: Mapping[str, Any], name: str = "") -> Published:
    """Publish a cut of the newest rows by the recipe of version ``spec`` with ``changes`` (values by dotted keys).

    The result equals that of a run with the same changes that had nothing to score. Takes 3 s for 1M images. Holds the
    lake's lease meanwhile. ``name`` is the published dataset's, by default the version's.

    Raises BadRecipe if a key is none of OF_THE_CUT, or the changed rules let items through that have no scores yet;
    PairmillError if there is no such version, LeaseHeld if another process writes to the lake, NoPairs if no picture
    would be kept.
    """
    dataset = find(lake, spec)
    plan = _changed_plan(lake, dataset, changes, name)
    run_id = uuid.uuid4().hex
    with writing(lake, run_id, f"recut {dataset}") as writer, runs.record_run(lake, run_id, "recut", plan.recipe, []):
        if missing := trial_cut.missing_scores(lake, plan):
            raise _needs_a_run(lake, dataset.name, str(missing[0]), changes)
        cut(lake, plan)
        if missing := trial_cut.missing_texts(lake, plan):
            lacking = f"{counted(n := missing[0].n, 'pictures')} that would be kept lack{'s' if n == 1 else ''} texts"
            raise _needs_a_run(lake, dataset.name, lacking, changes)
        if not count_cut(lake)[0]:
            raise NoPairs(
                "no pair would be left, so no version is published; the same command with --dry-run shows why."
            )
        return publication.publish(lake, plan, run_id, dataset.recall, lambda: writer.begin("publish"), components)


def unpublished(lake: Lake, spec: str) -> tuple[list[tuple[str, str, int]], list[trial_cut.MissingScore]]:
    """Compare a version with a cut by its own recipe now, which differs by people's acts and by new rows.

    Returns (rule that drops them in the version, rule now, number of images) where the two differ, '' for kept, most
    frequent first; and what a run must make first.
    """
    dataset = find(lake, spec)
    plan = _changed_plan(lake, dataset, {}, "")
    missing = trial_cut.missing_scores(lake, plan)
    cut(lake, plan)
    return trial_cut.moved_since(lake, dataset), missing + trial_cut.missing_texts(lake, plan)


def try_recut(
    lake: Lake, spec: str, changes: Mapping[str, Any], name: str = "", shown: Mapping[str, int] | None = None
) -> CutTrial:
    """Cut as `recut` does, but publish nothing; the lake may be open for reading only.

    ``shown`` has the number of marginal images on each side by rule; by default each rule has a few.

    Raises BadRecipe if a key is none of OF_THE_CUT, or the threshold of a calibrated rule was never measured;
    PairmillError if there is no such version.
    """
    dataset = find(lake, spec)
    plan = _changed_plan(lake, dataset, changes, name)
    missing = trial_cut.missing_scores(lake, plan)
    fates = trial_cut.fates_by_both(lake, trial_cut.cut_plan(lake, dataset), plan)
    missing += trial_cut.missing_texts(lake, plan)
    funnel = [FunnelStep("image", *step) for step in publication.image_funnel(lake, plan)]
    kept = funnel[-1].n_in - funnel[-1].n_dropped if funnel else 0
    before = [step for step in datasets.funnel(lake, dataset) if step.kind == "image"]
    images, kept_before = sum(n for _, _, n in fates), sum(n for was, _, n in fates if not was)
    moved = [each for each in fates if each[0] != each[1]]
    marginal = (
        marginal_items(lake, plan, frozenset(shown), max(shown.values())) if shown else marginal_items(lake, plan)
    )
    return CutTrial(dataset, images, missing, kept, kept_before, moved, funnel, before, marginal)


def kind_of_rule(lake: Lake, keep: str) -> str:
    """Return the setting ('images', 'sentences', 'candidates') whose rules may read all columns of a predicate.

    Raises BadPredicate for an unknown column, with the nearest name, or a predicate that is none.
    """
    scores = (*declared(), *named_in(lake.tables))
    kinds = {"images": "image", "sentences": "sentence", "candidates": "pair"}
    known = {kind: {c: t for table in tables_of(of, scores) for c, t in table.columns.items()}
             for kind, of in kinds.items()}  # fmt: skip
    columns = predicate.columns_of(TRIED, keep)
    found = next((kind for kind in kinds if columns <= known[kind].keys()), "")
    predicate.check(TRIED, keep, known[found] if found else {c: t for each in known.values() for c, t in each.items()})
    if not found:
        names = ", ".join(sorted(columns))
        raise BadRecipe(f"'{keep}' reads scores of pictures and of texts ({names}); write two rules")
    return found


def settings_of_cut(lake: Lake, dataset: Dataset, recipe: Recipe) -> tuple[dict[str, Any], list[str]]:
    """Return the settings of the cut of another recipe, by dotted key, and the names of its other settings that differ.

    The latter stay those of the version.
    """
    asked, had = recipe.record(), trial_cut.cut_plan(lake, dataset).recipe.record()
    changes: dict[str, Any] = {}
    for key in OF_THE_CUT:
        section, _, name = key.partition(".")
        if not name:
            changes[key] = asked.pop(section, None)
            had.pop(section, None)
        elif asked.get(section) is not None and had.get(section) is not None:
            changes[key] = asked[section].pop(name, None)
            had[section].pop(name, None)
    names = sorted({*asked, *had} - {"name", "sources"})
    return changes, [name for name in names if asked.get(name) != had.get(name)]


def _changed_plan(lake: Lake, dataset: Dataset, changes: Mapping[str, Any], name: str) -> Plan:
    """Return the changed recipe's plan, with the version's scorers and the lake's thresholds. Raises BadRecipe."""
    for key in changes:
        if not any(key == allowed or key.startswith(f"{allowed}.") for allowed in OF_THE_CUT):
            raise BadRecipe(
                f"'{key}' is no setting of the cut ({', '.join(OF_THE_CUT)}); change it in a run: "
                f"pairmill run {dataset.name} --set {key}=…"
            )
    before = trial_cut.cut_plan(lake, dataset)
    recipe = before.recipe.with_({**changes, **({"name": name} if name else {})})
    read = {column for rule in recipe.images for column in predicate.columns_of(rule.name, rule.predicate)}
    imported = {score.columns[0].name for score in imported_in(lake.tables)}
    if added := sorted(read & imported - {*recipe.imported}):
        recipe = recipe.model_copy(update={"imported": [*recipe.imported, *added]})
    refuse_other_scorers(recipe, dataset.scorers_by_name(lake))
    if recipe.balance.cap is not None and before.recipe.balance.cap is None:
        raise _needs_a_run(lake, dataset.name, "the version has no clusters to balance")
    unnamed = {f"other:{digest}": digest for digest in {*dataset.scorers} - {*before.scorers.values()}}
    plan = compile_plan(recipe, {**before.scorers, **unnamed}, (*declared(), *undeclared(lake)))
    plan = with_imported(lake, plan)
    for kind in ("image", "sentence"):
        for check in frozen_thresholds.unset(plan, kind, None):
            found = frozen_thresholds.frozen(lake, frozen_thresholds.digest(plan, kind, check))
            if found is None and check.rule.calibrate is not None and check.rule.calibrate.wrong is not None:
                continue  # the rule passes all until a run has enough canaries
            if found is None:
                raise _needs_a_run(lake, dataset.name, f"the threshold of rule '{check.name}' is not measured yet")
            plan = plan.with_threshold(kind, check.name, found.threshold)
    return with_kept(lake, plan)


def _needs_a_run(lake: Lake, name: str, what: str, changes: Mapping[str, Any] | None = None) -> BadRecipe:
    """Return the error for a cut that needs ``what`` the lake lacks; the run is that of the recipe that ran last."""
    recipe = runs.last_recipe(lake, name)
    run = f"pairmill run {recipe}" + ("" if recipe == name else f" --set name={name}")
    run += "" if changes == {} else " --set …"
    return BadRecipe(f"recipe '{name}': {what}. A run makes them: {run}")
