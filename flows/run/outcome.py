"""Collect the results to show after a run: the dataset's funnel, sample pairs, its report and an SQL query."""

import shlex
from dataclasses import dataclass
from pathlib import Path

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open, mark
from pairmill.catalog.lake.side_folders import reports_folder
from pairmill.catalog.pending.quarantine import fault_counts
from pairmill.catalog.queries import datasets
from pairmill.catalog.queries.datasets import Dataset, FunnelStep, example_query
from pairmill.catalog.queries.figures.canary_rates import CanaryRate, canary_rates, wrong_pairs_line
from pairmill.catalog.queries.losses.rule_losses import yield_limit
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.write import lease, runs


@dataclass(frozen=True)
class Outcome:
    """A published dataset version with its funnel and sample pairs.

    ``report`` is the path of its HTML report, '' without one. ``demo_weights``: the small shipped models that made it.
    ``canaries``: how many wrong texts each rule on pairs accepts. ``wrong_pairs``: the line on wrong real texts, or ''.
    ``limit``: the sentence on what limited the yield.
    """

    lake: str
    dataset: Dataset
    funnel: list[FunnelStep]
    samples: list[dict]
    report: str
    demo_weights: tuple[str, ...] = ()
    canaries: tuple[CanaryRate, ...] = ()
    wrong_pairs: str = ""
    limit: str = ""

    @property
    def calibrated(self) -> list[tuple[str, str]]:
        """(name, predicate with remark) of each rule whose threshold was calibrated to drop a given share of items."""
        recipe = Recipe.model_validate_json(self.dataset.recipe)
        rules = [rule for rule in (*recipe.images, *recipe.sentences) if rule.calibrate is not None]
        return [(rule.name, rule.predicate + rule.remark) for rule in rules]

    @property
    def sql(self) -> str:
        """A `pairmill sql` command that shows ten pairs."""
        return f'pairmill sql "{example_query(self.dataset)}" --lake {shlex.quote(self.lake)}'


def outcome_in(lake: Lake, name: str) -> Outcome:
    """Read the outcome of dataset ``name`` (or NAME@V); write its report if it is missing. PairmillError without it."""
    dataset = datasets.find(lake, name)
    report = ensure_report(lake, dataset)
    with lake.one_snapshot_if_small():
        steps, samples = datasets.funnel(lake, dataset), datasets.sample_pairs(lake, dataset)
        rates = tuple(canary_rates(lake, dataset))
        return Outcome(lake.uri, dataset, steps, samples, report, dataset.demo_weights(lake), rates,
                       wrong_pairs_line(lake, dataset), yield_limit(steps, fault_counts(lake)))  # fmt: skip


def ensure_report(lake: Lake, dataset: Dataset) -> str:
    """Return the path of the dataset's report; write it if it is missing, damaged or another lake's."""
    from pairmill.flows.pages.html_report import is_report_of, write_report

    path = report_path(lake.uri, dataset)
    if is_report_of(str(path), dataset):
        return str(path)
    make_reports_folder(lake.uri)
    return write_report(lake, dataset.name, dataset.version, str(path))


def add_to_report(uri: str, name: str, text: str) -> None:
    """Note ``text`` at the run that published dataset ``name``, and write its report anew, which shows such notes."""
    from pairmill.flows.pages.html_report import write_report

    with create_or_open(uri) as lake:
        dataset = datasets.find(lake, name)
        noted = [note for run in runs.runs_with_notes(lake, dataset.created_at) for note in run.notes]
        if " ".join(text.split()) not in noted:
            with lease.writing(lake, dataset.run_id, "add to report"):
                runs.add_note(lake, dataset.run_id, text)
            write_report(lake, dataset.name, dataset.version, str(report_path(lake.uri, dataset)))


def report_path(uri: str, dataset: Dataset) -> Path:
    """Return the path of the dataset's HTML report."""
    return reports_folder(uri) / f"{dataset.name}-{dataset.version}.html"


def make_reports_folder(uri: str) -> Path:
    """Create the folder of a lake's reports, and return it. A mark file says that the folder belongs to a lake."""
    folder = reports_folder(uri)
    folder.mkdir(parents=True, exist_ok=True)
    mark(str(folder))
    return folder
