"""Implement `pairmill preflight`: run a sample by a recipe, and forecast yield and cost of the whole run."""

import json
from argparse import Namespace

from rich.console import Console
from rich.status import Status

from pairmill.flows.api.question import json_value
from pairmill.flows.command.option_types import overrides
from pairmill.flows.command.pairmill_run import ask_downloads, compute_of
from pairmill.flows.command.terminal import console, print_notes, shown, table
from pairmill.flows.preflight.preflight import Preflight
from pairmill.flows.preflight.preflight import preflight as forecast
from pairmill.flows.run.progress_text import duration
from pairmill.flows.run.settings import load_runnable
from pairmill.ops.whole.cluster_sample import Range
from pairmill.tasks.run.place.progress import ShowProgress

HOURS = "hours"  # a number's form that `duration` formats


def preflight(args: Namespace) -> int:
    """Run the sample, showing its steps in the terminal, and print the forecast."""
    screen = console()
    recipe, left_out = load_runnable(args.recipe, overrides(args.set, args.packs), args.models)
    if args.format != "json":
        ask_downloads(recipe, args.yes, screen)
    with screen.status("drawing a sample") as status:
        found = forecast(recipe, args.source, args.lake, compute_of(args), args.sample, show_in(status))
    if args.format == "json":
        print(json.dumps(json_value(found), ensure_ascii=False))
    else:
        print_forecast(found, screen)
        print_notes(screen, left_out)
    return 0


def show_in(status: Status) -> ShowProgress:
    """Return a callback that shows the progress of a sample's steps in ``status``."""
    return lambda now: status.update(f"sample: {shown(now.step)}, {now.done:,} of {now.total:,}")


def print_forecast(found: Preflight, screen: Console) -> None:
    """Print the forecast: its sample, the steps, pairs, costs and notes."""
    units = "documents stand for units" if found.by_document else "90 % intervals by units"
    screen.print(
        f"[bold]{shown(found.recipe)}[/]  sample of {found.pictures:,} pictures, {found.units:,} of "
        f"{found.of_units:,} units, {found.share:.1%} of the documents; {units}"
    )
    steps = table("\nforecast", ["rule"], ["in", "dropped", "90 % interval", "of these"], [])
    for each in found.yields.steps:
        rate = each.dropped.value / each.n_in.value if each.n_in.value else 0.0
        steps.add_row(
            shown(each.rule), f"{each.n_in.value:,.0f}", f"{each.dropped.value:,.0f}", _ends(each.dropped, ",.0f"),
            f"{rate:.1%}",
        )  # fmt: skip
    screen.print(steps)
    whole = table("\nthe whole run", [""], ["forecast", "90 % interval"], [""])
    yields, costs = found.yields, found.costs
    rows: list[tuple[str, Range | None, str, str]] = [
        ("pictures", yields.pictures, ",.0f", ""),
        ("pairs", yields.pairs, ",.0f", ""),
        ("time", costs.hours, HOURS, "by the clock, on this machine"),
        ("time of workers", costs.worker_hours, HOURS, ""),
        ("time of GPUs", costs.gpu_hours, HOURS, ""),
        ("disk", costs.gigabytes, ",.3g", "GB in the lake"),
        ("memory", costs.memory, ",.3g", "GB, all processes"),
        ("money", costs.money, ",.2f", "" if costs.money else "no price is set: --model NAME:prompt_price=…"),
    ]
    for name, value, form, unit in rows:
        cells = (_shown(value.value, form), _ends(value, form)) if value else ("·", "")
        whole.add_row(name, *cells, unit)
    screen.print(whole)
    dropped = [f"{shown(s.rule)} {s.n_dropped / s.n_in:.1%}" for s in found.sentences if s.n_in]
    if dropped:
        screen.print(f"\nsentences, shares dropped in the sample: {', '.join(dropped)}")
    print_notes(screen, found.notes)


def _shown(value: float, form: str) -> str:
    """Format a number; hours as 5 s, 12 min or 3 h 20 min."""
    return duration(3600 * value) if form == HOURS else format(value, form)


def _ends(found: Range, form: str) -> str:
    """Format an interval as 'low … high'."""
    return f"{_shown(found.low, form)} … {_shown(found.high, form)}"
