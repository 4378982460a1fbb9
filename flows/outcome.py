"""What came of a run, told in the end: funnel, sample pairs, the report, and where to go on."""

import shlex
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from catalog import datasets
from catalog.datasets import Dataset, FunnelStep
from catalog.lake import Lake, create_or_open
from flows.terminal import table


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
    from tasks.report import write_report

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


def tell(console: Console, found: Outcome, notes: list[str], is_new: bool = True) -> None:
    """Print it all: what a person reads after a run."""
    dataset = found.dataset
    said = "published" if is_new else "unchanged: the newest version already is this dataset"
    recall = "" if dataset.recall is None else f", recall of the retrieval {dataset.recall:.3f}"
    console.print(f"\n[bold]{dataset}[/]  {dataset.n_pairs:,} pairs ({said}){recall}")
    for kind in ("image", "sentence"):
        console.print(funnel_table(found.funnel, kind))
    for pair in found.samples:
        console.print(_pair(pair))
    for note in notes:
        console.print(f"[yellow]note:[/] {escape(note)}")
    if found.report:
        console.print(f"\nreport  {found.report}")
    console.print(f"go on   {escape(found.sql)}")


def funnel_table(steps: list[FunnelStep], kind: str) -> Table:
    made = table(f"\n{kind}s", ["rule"], ["in", "dropped", "kept"])
    for step in (step for step in steps if step.kind == kind):
        kept = step.n_in - step.n_dropped
        made.add_row(step.rule, f"{step.n_in:,}", f"{step.n_dropped:,}" if step.n_dropped else "·", f"{kept:,}")
    return made


def _pair(pair: dict) -> str:
    lines = [f"\n[bold]{escape(pair['raw_image_url'] or pair['image_id'])}[/]  {pair['width']} x {pair['height']}"]
    for n in (1, 2, 3):
        if pair[f"text{n}"]:
            lines.append(f"  text{n}     {escape(pair[f'text{n}'])}  [dim]{pair[f'similarity{n}']:.3f}[/]")
    lines += [f"  {name:<8}  {escape(pair[name])}" for name in ("caption", "syn_text") if pair[name]]
    return "\n".join(lines)
