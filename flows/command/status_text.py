"""Print the answer of `pairmill status`: a lake's content, its datasets, its writer and its last runs."""

from datetime import datetime
from typing import TYPE_CHECKING

from rich.console import Console

from pairmill.catalog.terms.demo_weights import MARK
from pairmill.flows.command.terminal import console, shown, table

if TYPE_CHECKING:
    from pairmill.flows.api.answer_types import LakeStatus, StepUsage


def print_status(found: "LakeStatus") -> None:
    """Print the lake's row counts, datasets, lease and last runs."""
    screen = console()
    counts = ", ".join(f"{n:,} {table}" for table, n in found.rows.items())
    screen.print(f"[bold]lake {shown(found.lake)}[/]  format {found.format}, {counts}")
    if not found.datasets:
        screen.print("no dataset yet; `pairmill run RECIPE --dry-run` counts what a run would do.")
    for each in found.datasets:
        by = f", by [yellow]{MARK}[/]" if each.weights else ""
        screen.print(f"dataset  {shown(each.dataset)}  {each.pairs:,} pairs, {_time(each.created)}{by}")
        for rate in () if each.weights else found.canaries[each.dataset]:
            screen.print(f"rule     {shown(rate)}")
    left = f" (left behind by {shown(found.left_by)})" if found.left_by else ""
    screen.print(f"lease    {shown(found.writer)}" if found.writer else f"lease    free: nobody writes{left}")
    if found.writer and found.writer.waiting:
        screen.print(f"now      {shown(found.writer.waiting)}")
    for run in found.runs:
        spent = f" in {(run.finished_at - run.started_at).total_seconds():.0f} s" if run.finished_at else ""
        said = f": {run.error[:200]}" if run.error else ""
        screen.print(
            f"run      {run.run_id}  {shown(f'{run.flow} {run.recipe}')}, {_time(run.started_at)}, "
            f"{run.state}{spent}{shown(said)}"
        )
        for note in run.notes:
            screen.print(f"note     {shown(note)}")
    _print_usage(found.usage, screen)


def _print_usage(found: "list[StepUsage]", screen: Console) -> None:
    """Print the tokens and cost of generated texts in the last runs, if there are any."""
    if not found:
        return
    texts = table("\ntexts made by these runs", ["run", "step"], ["texts", "tokens", "tokens/s", "retries", "cost"], [])
    for each in found:
        cost = f"{each.cost:,.4f}" if each.cost else "·"
        rate = f"{each.tokens_a_second:,.1f}"
        texts.add_row(
            each.run_id[:8], shown(each.step), f"{each.rows:,}", f"{each.tokens:,}", rate, f"{each.retries:,}", cost
        )
    screen.print(texts)


def _time(at: datetime) -> str:
    """Format a time to the second."""
    return at.isoformat(" ", "seconds")
