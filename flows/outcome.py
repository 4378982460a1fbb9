"""What came of a run, told in the end: funnel, sample pairs, the report, and where to go on."""

import shlex
from dataclasses import dataclass
from pathlib import Path

from catalog.ask import datasets
from catalog.ask.datasets import Dataset, FunnelStep
from catalog.lake.lake import Lake
from catalog.lake.opening import create_or_open


@dataclass(frozen=True)
class Outcome:
    """One published version as people look at it first. ``report`` is the path of its HTML file, '' without one."""

    lake: str
    dataset: Dataset
    funnel: list[FunnelStep]
    samples: list[dict]
    report: str

    @property
    def sql(self) -> str:
        where = f"dataset = '{self.dataset.name}' AND version = {self.dataset.version}"
        query = f"SELECT raw_image_url, text1, similarity1, caption FROM pairs WHERE {where} LIMIT 10"
        return f'pairmill sql "{query}" --lake {shlex.quote(self.lake)}'


def outcome(uri: str, name: str) -> Outcome:
    """The newest version of the dataset ``name`` in the lake at ``uri``; writes its report if that is not there yet."""
    with create_or_open(uri, read_only=True) as lake:
        dataset = datasets.find(lake, name)
        steps, samples = datasets.funnel(lake, dataset), datasets.sample_pairs(lake, dataset)
        return Outcome(uri, dataset, steps, samples, written_report(lake, dataset))


def written_report(lake: Lake, dataset: Dataset) -> str:
    """The path of the dataset's report, made now if it is missing: a published version does not change."""
    from tasks.out.html_report import write_report

    path = report_path(lake.uri, dataset)
    if path.is_file():
        return str(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_report(lake, dataset.name, dataset.version, str(path))


def report_path(uri: str, dataset: Dataset) -> Path:
    """``reports/`` in the lake's folder, or beside its lake.yaml when the data lies elsewhere."""
    place = Path(uri).expanduser().absolute()
    folder = place if place.is_dir() else place.parent
    return folder / "reports" / f"{dataset.name}-{dataset.version}.html"
