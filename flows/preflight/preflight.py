"""Run a sample by a recipe in a temporary lake, and forecast yield and cost of the whole run."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.lake.side_folders import scratch_folder
from pairmill.catalog.queries import datasets
from pairmill.catalog.queries.datasets import Dataset, FunnelStep
from pairmill.catalog.queries.losses import unit_outcomes
from pairmill.catalog.recipe.plan import Plan, compile_plan, quantities
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.flows.curate import curate_steps
from pairmill.flows.preflight.cost_forecast import CostForecast, Measured, forecast_cost
from pairmill.flows.preflight.draw import Sampling, draw, scale_clusters
from pairmill.flows.preflight.yield_forecast import YieldForecast, forecast_yield
from pairmill.flows.run.run_start import check_run, resolve_sources, session_on
from pairmill.flows.run.settings import Compute
from pairmill.ops.read.source import open_source
from pairmill.tasks.collect.listing import listed
from pairmill.tasks.run.place import identity
from pairmill.tasks.run.place.progress import ShowProgress, not_shown

MOST_PICTURES, FEW_PICTURES = 5000, 200
SIMILARITIES = ("best_similarity", "match_similarity")
# Settings whose effect depends on the size of the whole, and how the sample handles them.
CLUSTERS_NOTE = (
    "clusters: the sample has so many fewer that each has its size in the whole run; caps apply to them unchanged, and "
    "a target in proportion"
)
RETRIEVAL_NOTE = (
    "{}: the whole run has more sentences to choose from than the sample, so that more pictures pass; how many is "
    "estimated from the units in which the sample's pictures have a similar sentence"
)


@dataclass(frozen=True)
class Preflight:
    """Forecast of a whole run from a sample.

    Attributes:
        recipe: Name of the recipe.
        units: Units of the sample.
        of_units: New units of all sources.
        pictures: Pictures of the sample.
        share: Share of all documents in the sample.
        by_document: Whether the variance is that between documents, because there are few units.
        yields: Pictures, drops of each step, and pairs.
        costs: Hours, disk, memory and money, on this machine.
        sentences: Sentences that each rule received and dropped in the sample.
        notes: Limits of the forecast: settings that depend on the size, costs that were not measured.
    """

    recipe: str
    units: int
    of_units: int
    pictures: int
    share: float
    by_document: bool
    yields: YieldForecast
    costs: CostForecast
    sentences: tuple[FunnelStep, ...]
    notes: tuple[str, ...]


def preflight(
    recipe: Recipe,
    sources: Sequence[str],
    lake: str,
    compute: Compute,
    most: int = MOST_PICTURES,
    progress: ShowProgress = not_shown,
    keep: Path | None = None,
) -> Preflight:
    """Run a sample of about ``most`` pictures, and forecast the whole run over the units that are new to ``lake``.

    The sample runs in a temporary lake, by the steps of a run. The lake, which may be missing, is only read. With
    ``keep``, a folder, the sample's lake stays there as ``sample``, and a call that was ended half way resumes.

    Raises PairmillError as `run_start.session`, SourceError if a source is missing, or nothing in it is new.
    """
    with nullcontext(keep) if keep else scratch_folder() as folder:
        is_new = not Path(lake).expanduser().exists()
        with create_or_open(folder / "none") if is_new else create_or_open(lake, read_only=True) as known:
            uris, checked = check_run(recipe, sources, compute)
            sampling = draw(known, uris, checked, compute, folder, most)
            checked = identity.with_scorers(compile_plan(scale_clusters(recipe, sampling.share)))
            measured = Measured(file=keep and keep / "measured.json")
            with create_or_open(folder / "sample") as sample:
                with session_on(sample, checked, compute, "preflight", uris) as session, measured.watching_memory():
                    session.allow_empty = True
                    session.sampled, session.progress = sampling.of, progress
                    session.observe(measured)
                    made = curate_steps(session, measured.run_step)
                dataset = datasets.find(sample, f"{made.name}@{made.version}")
                return _forecast(dataset, sample, known, session.plan, sampling, measured, compute)


def forecast_if_large(
    recipe: Recipe, sources: Sequence[str], lake: str, compute: Compute, units: int, n_bytes: int
) -> Preflight | None:
    """Forecast a run by FEW_PICTURES, as `preflight`; None if its sources have at most so many units and bytes."""
    for each in (each for uri in resolve_sources(recipe, sources) for each in listed(open_source(uri))):
        units, n_bytes = units - 1, n_bytes - getattr(each, "size", 0)
        if units < 0 or n_bytes < 0:
            return preflight(recipe, sources, lake, compute, FEW_PICTURES)
    return None


def _forecast(
    dataset: Dataset, lake: Lake, known: Lake, plan: Plan, sampling: Sampling, measured: Measured, compute: Compute
) -> Preflight:
    """Return the forecast from ``dataset``, the version of the sample in ``lake``."""
    recipe, share = plan.recipe, sampling.share
    steps = datasets.funnel(lake, dataset)
    found = unit_outcomes.unit_outcomes(lake, dataset, plan.scorer("image_groups"), sampling.by_document)
    both = frozenset(unit_outcomes.known_contents(known, lake, recipe.duplicates.phash))
    # Some units, or documents in their place, have no picture.
    n_units = max(len(found.units), unit_outcomes.n_documents(lake) if sampling.by_document else sampling.units)
    rules = [step.rule for step in steps if step.kind == "image"]
    similar = _similar(lake, plan, found, sampling.by_document)
    clusters = unit_outcomes.capped_clusters(lake, dataset, plan.scorer("balance_clusters"))
    yields = forecast_yield(found, rules, n_units, share, both, similar, clusters, recipe.seed)
    is_priced = any(size.prompt_price or size.answer_price for size in compute.models.values())
    written = unit_outcomes.written_bytes(lake)
    costs = forecast_cost(measured, yields, share, written, compute.placement().n_workers, is_priced)
    return Preflight(
        recipe=recipe.name,
        units=sampling.units,
        of_units=sampling.of_units,
        pictures=len(found.unit),
        share=share,
        by_document=sampling.by_document,
        yields=yields,
        costs=costs,
        sentences=tuple(step for step in steps if step.kind == "sentence"),
        notes=tuple(_notes(sampling, costs, yields, len(both), list(similar))),
    )


def _similar(lake: Lake, plan: Plan, found: unit_outcomes.UnitOutcomes, by_document: bool) -> dict[str, np.ndarray]:
    """Return by rule with a lower bound on sentence similarity: in how many units each picture has such a sentence."""
    return {
        check.name: unit_outcomes.similar_units(lake, found, plan.scorer("matches"), each.low, by_document)
        for check in plan.image_checks
        for each in quantities(check, {})
        if each.over in SIMILARITIES and not each.under and each.low is not None
    }


def _notes(
    sampling: Sampling, costs: CostForecast, yields: YieldForecast, n_known: int, similar: list[str]
) -> Iterator[str]:
    """Yield notes on the forecast's limits: settings that depend on the size, costs that were not measured."""
    gpus = "Models ran on GPUs." if costs.gpu_hours.value else "No model ran on a GPU, so GPU-hours are 0 here."
    yield f"hours, memory: measured on this machine; nothing is assumed. {gpus}"
    if sampling.share < 1:
        yield CLUSTERS_NOTE
    if sampling.share < 1 and similar:
        yield RETRIEVAL_NOTE.format(", ".join(similar))
    if n_known:
        yield f"{n_known:,} contents of the sample are in the lake already: their pictures give no new pair"
    if sampling.by_document:
        yield "few units: documents stand for units, so that pictures of one unit count as less alike than they are"
    if not yields.pairs.value:
        yield "no picture of the sample is kept: captions and fused texts were not measured"
