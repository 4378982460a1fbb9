"""Print the answer of `pairmill status`: a lake's content, its datasets, its writer and its last runs."""

from datetime import datetime
from typing import TYPE_CHECKING

from pairmill.catalog.terms.demo_weights import MARK
from pairmill.flows.command.terminal import console, shown, table

if TYPE_CHECKING:
    from pairmill.flows.api.answer_types import LakeStatus


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
    if found.unfinished:
        screen.print(f"removal  [yellow]{shown(found.unfinished)}[/]")
    for run in found.runs:
        spent = f" in {(run.finished_at - run.started_at).total_seconds():.0f} s" if run.finished_at else ""
        said = f"{run.state}{spent}" + (f": {run.error[:200]}" if run.error else "")
        about = shown(f"{run.flow} {run.recipe}, {_time(run.started_at)}, {said}")
        screen.print(f"run      {run.run_id}  {about}")
        for note in run.notes:
            screen.print(f"note     {shown(note)}")
    if not found.usage:
        return
    texts = table("\ntexts made by these runs", ["run", "step"], ["texts", "tokens", "tokens/s", "retries", "cost"])
    for each in found.usage:
        counts = (f"{n:,}" for n in (each.rows, each.tokens, round(each.tokens_a_second, 1), each.retries))
        texts.add_row(each.run_id[:8], shown(each.step), *counts, f"{each.cost:,.4f}" if each.cost else "·")
    screen.print(texts)


def _time(at: datetime) -> str:
    """Format a time to the second."""
    return at.isoformat(" ", "seconds")
