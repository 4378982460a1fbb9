"""Print the answers of `pairmill status`, `diff` and `calibrate`."""

import sys
from argparse import Namespace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pairmill.catalog.terms.controls import visible
from pairmill.catalog.terms.demo_weights import MARK
from pairmill.flows.api.opened_lake import OpenLake, open_lake
from pairmill.flows.command.ask import answer, ask, print_answer
from pairmill.flows.command.terminal import console, shown, table

if TYPE_CHECKING:
    from pairmill.flows.api.answer_types import JudgedThreshold, LakeStatus, Spread, VersionDiff


def print_diff(found: "VersionDiff") -> None:
    """Print a difference as tables: counts by cause and group, and the drift of values."""
    print(visible(f"{found.before} has {found.pairs_before:,} pairs, {found.after} {found.pairs_after:,}"))
    print(f"gained {found.gained:,}, lost {found.lost:,}, changed {found.changed:,}")
    if found.causes:
        print(f"\n{'pairs':<9}{'because of':<12}{'cause':<44}{'number':>10}")
    for each in found.causes:
        print(visible(f"{each.kind:<9}{each.why:<12}{each.cause[:42]:<44}{each.n:>10,}"))
    if found.groups:
        print(f"\n{'group':<10}{'value':<46}{'gained':>9}{'lost':>10}")
    for each in found.groups:
        print(visible(f"{each.group:<10}{each.value[:44]:<46}{each.gained:>9,}{each.lost:>10,}"))
    print(f"\n{'measure':<22}{'':<14}{'pairs':>9}{'mean':>9}{'10 %':>9}{'median':>9}{'90 %':>9}")
    for each in found.drift:
        print(visible(f"{each.measure:<22}{found.before[-13:]:<14}{_spread(each.before)}"))
        print(visible(f"{'':<22}{found.after[-13:]:<14}{_spread(each.after)}"))


def _spread(spread: "Spread") -> str:
    """Format count, mean and quantiles of a measure in columns."""
    values = (spread.mean, spread.p10, spread.p50, spread.p90)
    return f"{spread.n:>9,}" + "".join(f"{'–' if value is None else f'{value:.4g}':>9}" for value in values)


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


def calibrate(args: Namespace) -> int:
    """Draw a sample to judge (``--draw``), or test thresholds by its verdicts; return 1 if no threshold holds yet."""
    if args.format == "schema":
        return ask(args)
    with open_lake(args.lake) as lake:
        if args.draw:
            return _draw(args, lake)
        if args.labels:
            with lake.judging(args.dataset) as judging:
                judging.read(args.rule, Path(args.labels))
        found: JudgedThreshold = answer(args, lake)
    if args.format == "table":
        print(
            f"{found.judged} judged pairs of a random sample; at most {args.wrong:.1%} wrong at {args.confidence:.0%}"
        )
    print_answer(args, found)
    return 0 if found.threshold is not None else 1


def _draw(args: Namespace, lake: OpenLake) -> int:
    """Draw a sample above the loosest candidate, and write it as CSV."""
    to = args.to or "labels.csv"
    with lake.judging(args.dataset) as judging:
        sample = judging.draw(args.rule, min(args.candidates, default=None))
        n = judging.write(sample, args.draw, Path(to))
    print(visible(
        f"{to}: {n} of {sample.population:,} pairs with {sample.quantity} >= {sample.threshold:g}, drawn at random. "
        "Write match, mismatch or unsure into the column verdict, then give the file to --labels."
    ))  # fmt: skip
    return 0


def print_threshold(found: "JudgedThreshold") -> None:
    """Print the tested thresholds, and the rule for the recipe: the threshold with the scorers that it is valid for."""
    print(f"{'threshold':>10}{'keeps':>10}{'labels':>8}{'wrong':>7}{'bound':>8}  {'outcome':<12}lacking")
    for each in found.candidates:
        lacking = f"{each.lacking} more without an error" if each.lacking else ""
        print(f"{each.threshold:>10.4g}{each.population:>10,}{each.labels:>8}{each.wrong:>7}{each.bound:>8.1%}  "
              f"{each.outcome:<12}{lacking}")  # fmt: skip
    if found.threshold is None:
        print("no threshold holds yet: judge as many more pairs as are lacking, then ask once more", file=sys.stderr)
    else:
        keep = f"{found.quantity} >= {found.threshold:.9g}"
        print(visible(f"{keep} holds"))
        bound = ", ".join(f"{name}: '{digest}'" for name, digest in found.scorers.items())
        with_scorers = f", scorers: {{{bound}}}" if bound else ""  # by another model the number means something else
        print(visible(f'rule    {{name: {found.rule}, keep: "{keep}"{with_scorers}}}'))
