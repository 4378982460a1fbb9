"""Implement `pairmill run`: the curate flow in this process, with its progress in the terminal."""

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import work_without_pandas
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.lake.score_tables import add_heads
from pairmill.catalog.lake.side_folders import scratch_folder
from pairmill.catalog.recipe.parts_of_texts import OWN
from pairmill.catalog.recipe.plan import compile_plan
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms import text_columns
from pairmill.catalog.terms.counted import counted, unit_of
from pairmill.catalog.terms.demo_weights import MARK
from pairmill.catalog.terms.error import NotApproved, PairmillError
from pairmill.catalog.write.import_scores import with_imported
from pairmill.flows.api.answer_types import FunnelStep
from pairmill.flows.command.option_types import overrides
from pairmill.flows.command.terminal import DEMO, console, print_notes, shown, table
from pairmill.flows.run import run_recipe
from pairmill.flows.run.demo_models import demo_note
from pairmill.flows.run.model_size import AN_EXAMPLE
from pairmill.flows.run.outcome import Outcome
from pairmill.flows.run.progress_text import duration
from pairmill.flows.run.run_inputs import inputs_digest
from pairmill.flows.run.settings import Compute, load_runnable, resolve_source

if TYPE_CHECKING:
    from pairmill.flows.run.survey import Pending
    from pairmill.tasks.run.session import Session


# A source from which a first run may take LONG_HOURS is sampled for a forecast, which is shown if it does.
LONG_UNITS, LONG_BYTES, LONG_HOURS = 2000, 10**9, 1 / 6


def run(args: Namespace) -> int:
    """Check sources, recipe and models, curate, and print the outcome.

    If nothing has changed since the last run, print that run's outcome.
    """
    screen = console()
    recipe, notes = load_runnable(args.recipe, overrides(args.set, args.packs), args.models)
    if args.dry_run:
        return _dry_run(recipe, args, screen)
    compute = compute_of(args)
    request = run_recipe.request_run(recipe, args.source, compute, notes, args.retry)
    found = run_recipe.last_result(request, args.lake)
    if found is not None:
        warn_of_demo(screen, found.outcome.demo_weights)
    else:
        ask_downloads(recipe, args.yes, screen)
        found = _curate(request, args.lake, compute, notes, screen)
    print_outcome(screen, found.outcome, found.notes, found.is_new)
    return 0


def _curate(
    request: run_recipe.RunRequest, lake: str, compute: Compute, notes: list[str], screen: Console
) -> run_recipe.Curated:
    """Curate with the progress on the screen."""
    with screen.status(f"recipe '{shown(request.recipe.name)}': checking sources, rules and models"):
        from pairmill.flows import curate  # noqa: F401 torch, 3 s
        from pairmill.flows.command.display import Display
        from pairmill.flows.run import run_start  # noqa: F401 torch, 3 s

        work_without_pandas()
        line = "" if request.retry else _forecast(request, lake, compute)
    if line:
        screen.print(line, markup=False)
    with Display(screen) as display:

        def begin(session: "Session") -> None:
            warn_of_demo(screen, session.demo_weights)
            asked, cpus = session.placement.workers, len(os.sched_getaffinity(0))
            if asked > cpus and not session.placement.is_cluster:
                session.note(f"{asked:,} workers were asked of {cpus} CPUs; --workers 0 takes one per CPU.", once=True)
            session.progress, session.waiting = display.progress, display.waiting

        return run_recipe.curate_anew(request, lake, compute, notes, display.run_step, begin)


def _forecast(request: run_recipe.RunRequest, lake: str, compute: Compute) -> str:
    """Forecast a first run by a sample, as `preflight`; return one line, '' for a run below LONG_HOURS.

    The sample is a tenth of the work at most. No sample runs on a cluster, whose workers a run starts once, and none
    where money is limited.
    """
    if compute.ray_address or compute.max_cost or Path(lake).expanduser().exists():
        return ""
    from pairmill.flows.preflight.preflight import forecast_if_large

    found = forecast_if_large(request.recipe, request.sources, lake, compute, LONG_UNITS, LONG_BYTES)
    if found is None or found.costs.hours.value < LONG_HOURS:
        return ""
    hours, pairs, disk, money = found.costs.hours, found.yields.pairs, found.costs.gigabytes, found.costs.money
    cost = "no price is set" if money is None else f"{money.low:,.2f} … {money.high:,.2f} for generated texts"
    return (
        f"forecast  {duration(3600 * hours.low)} … {duration(3600 * hours.high)}, {pairs.low:,.0f} … {pairs.high:,.0f} "
        f"pairs, {disk.low:,.3g} … {disk.high:,.3g} GB, {cost}: by {counted(found.pictures, 'pictures')} of "
        f"{counted(found.of_units, 'units')}. `pairmill preflight` says more."
    )


def ask_downloads(recipe: Recipe, is_sure: bool, screen: Console) -> None:
    """Print the models that a run downloads, with size, licence and folder; on a terminal ask unless ``is_sure``.

    Raises NotApproved for a no.
    """
    with screen.status("looking for the recipe's models"):
        from pairmill.flows.machine.recipe_models import missing_models

        found = missing_models(recipe)
    for each in found:
        screen.print(f"download  {shown(each)}")
    if found and not is_sure and screen.is_terminal and sys.stdin.isatty():
        screen.print("Enter downloads, n ends: ", end="")
        sys.stdout.flush()
        if (answer := sys.stdin.readline()).strip().lower() not in ("", "y", "yes") or not answer:
            raise NotApproved("no model was downloaded; name others (--set models.NAME=SPEC), or use --models demo.")


def warn_of_demo(screen: Console, models: Sequence[str]) -> None:
    """Print a warning if ``models``, the small shipped models that a run uses, is not empty."""
    if line := demo_note(models):
        screen.print(f"[yellow]{line}[/]")


def _dry_run(recipe: Recipe, args: Namespace, screen: Console) -> int:
    """Print the pending work of each step and write nothing; a missing lake counts as an empty one."""
    from pairmill.flows.run.run_start import resolve_sources

    sources = list(resolve_sources(recipe, args.source))
    with scratch_folder() as folder:
        exists = Path(args.lake).expanduser().exists()
        if not exists:
            create_or_open(f"{folder}/lake").close()
        with create_or_open(args.lake if exists else f"{folder}/lake", read_only=True) as lake:
            notes = run_recipe.notes_if_nothing_is_pending(lake, recipe, inputs_digest(recipe, sources))
            found, notes = _survey(lake, recipe, sources) if notes is None else ([], notes)
    title = f"\npending for recipe {recipe.name}"
    pending = table(title, ["step"], ["pending"], ["", ""])
    for each in found:
        number = f"{each.rows:,}" if each.rows else "·"
        pending.add_row(shown(each.work), number, unit_of(each.rows, each.unit) if each.rows else "", shown(each.due))
    screen.print(pending if found else escape(title))
    if not any(each.rows for each in found):
        screen.print("nothing is pending: a run would do no work.")
    print_notes(screen, notes)
    if not exists:
        screen.print("forecast of pairs, time, disk and cost from a sample: `pairmill preflight`")
    return 0


def _survey(lake: Lake, recipe: Recipe, sources: list[str]) -> "tuple[list[Pending], Sequence[str]]":
    """Count the pending work of each step; return the counts and the notes."""
    from pairmill.flows.run.survey import survey  # all steps, 1 s
    from pairmill.tasks.run.place import identity

    work_without_pandas()
    plan, _ = identity.with_scorers(compile_plan(recipe))
    add_heads(lake, plan.scores)
    seen = survey(lake, with_imported(lake, plan), [resolve_source(uri) for uri in sources])
    return seen.found, seen.notes


def compute_of(args: Namespace) -> Compute:
    """Return the compute options of the command line as settings.

    Raises PairmillError if two options give a model's sizes, or options contradict each other.
    """
    names = [name for name, _ in args.model]
    if twice := [name for name in names if names.count(name) > 1]:
        raise PairmillError(f"--model {twice[0]} is given twice; give its sizes once: {AN_EXAMPLE}")
    same = ("workers", "max_cost", "max_hours", "max_gpu_hours", "max_gigabytes", "stall_minutes")
    given = {name: getattr(args, name) for name in same}
    given |= {"ray_address": args.ray, "models": dict(args.model), "max_rows": int(args.max_rows)}
    given |= {"wait_minutes": args.wait, "allow_addresses": args.allow_address, "allow_empty": args.allow_empty}
    try:
        return Compute.model_validate(given)
    except ValidationError as error:
        raise PairmillError(error.errors()[0]["msg"].removeprefix("Value error, ")) from None


def print_outcome(console: Console, found: Outcome, notes: list[str], is_new: bool = True) -> None:
    """Print the outcome and the run's ``notes``; ``is_new`` False means that no new version was published."""
    dataset = found.dataset
    said = "published" if is_new else "unchanged: the newest version already is this dataset"
    recall = "" if dataset.recall is None else f", recall of the retrieval {dataset.recall:.3f}"
    by = f", by [yellow]{MARK}[/]" if found.demo_weights else ""
    console.print(f"\n[bold]{shown(dataset)}[/]  {counted(dataset.n_pairs, 'pairs')} ({said}){recall}{by}")
    for kind in ("image", "sentence"):
        if any(step.n_in for step in found.funnel if step.kind == kind):
            console.print(funnel_table(found.funnel, kind))
    for rate in () if found.demo_weights else found.canaries:  # the demo's scores say nothing of quality
        if not any(str(rate) in note for note in notes):
            console.print(f"rule    {shown(rate)}")
    if found.wrong_pairs:
        console.print(shown(found.wrong_pairs))
    for rule, keep in found.calibrated:
        console.print(f"rule    {shown(rule)}: {shown(keep)}")
    for pair in found.samples:
        console.print(_pair(pair, found.demo_weights))
    print_notes(console, notes)
    if found.limit:
        console.print(f"\nyield   {shown(found.limit)}")
    if found.report:
        console.print(f"report  {shown(found.report)}")
    if dataset.n_pairs:
        console.print(f"go on   {shown(found.sql)}")


def funnel_table(steps: list[FunnelStep], kind: str) -> Table:
    """Build a table of how many rows each rule received, dropped and kept; ``kind`` is 'image' or 'sentence'."""
    made = table(f"\n{kind}s", ["rule"], ["in", "dropped", "kept"])
    for step in (step for step in steps if step.kind == kind):
        kept = step.n_in - step.n_dropped
        made.add_row(shown(step.rule), f"{step.n_in:,}", f"{step.n_dropped:,}" if step.n_dropped else "·", f"{kept:,}")
    return made


def _pair(pair: dict, demo_weights: tuple[str, ...]) -> str:
    """Format a pair: address, size, texts with similarities, generated texts; mark texts by the demo's models."""
    lines = [f"\n[bold]{shown(pair['raw_image_url'] or pair['image_id'])}[/]  {pair['width']} x {pair['height']}"]
    for name, text, similarity in text_columns.real_texts(pair):
        lines.append(f"  {name}     {shown(text)}  [dim]{similarity:.3f}[/]")
    for name, model in (("caption", "captioner"), ("syn_text", "fuser")):
        is_own = name == "caption" and pair["captioner"] == OWN
        mark = DEMO if model in demo_weights and not is_own else ""
        lines += [f"  {name:<8}  {mark}{shown(pair[name])}"] if pair[name] else []
    return "\n".join(lines)
