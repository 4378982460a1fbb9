"""Implement `pairmill recaption`: run the recipe `captions`, show its first captions for approval, and export them."""

import sys
from argparse import Namespace
from collections import Counter
from typing import TYPE_CHECKING

from rich.console import Console

from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.terms.counted import counted
from pairmill.catalog.terms.demo_weights import MARK
from pairmill.catalog.terms.error import NotApproved
from pairmill.flows.api.opened_lake import OpenLake
from pairmill.flows.command.pairmill_run import ask_downloads, compute_of, overrides, warn_of_demo
from pairmill.flows.command.terminal import DEMO, console, print_notes, shown
from pairmill.flows.command.version_commands import export_visibly
from pairmill.flows.run.settings import captions_recipe, load_recipe

if TYPE_CHECKING:
    from pairmill.flows.run.approval import CaptionOutcome

PRINTED = 12  # first captions in the terminal; the HTML strip has all


def recaption(args: Namespace) -> int:
    """Caption every picture by the recipe `captions`, export them with ``--to``, and print the results."""
    screen = console()
    settings = overrides(args.set)
    recipe = captions_recipe(load_recipe(args.recipe, settings, args.models), settings)
    ask_downloads(recipe, args.yes, screen)
    with screen.status(f"recipe '{shown(args.recipe)}': checking its captioner and the sources"):
        from pairmill.flows.command.display import Display
        from pairmill.flows.curate import curate_steps
        from pairmill.flows.run.approval import FirstCaptions
        from pairmill.flows.run.caption_rate import CaptionRate
        from pairmill.flows.run.run_start import session  # torch, 3 s
        from pairmill.tasks.release.export.export import check_growing
    exported = {"text": "caption"} if args.format == "webdataset" else {}
    with (
        session(recipe, args.source, args.lake, compute_of(args), retry=args.retry, needs_source=False) as opened,
        Display(screen) as display,
    ):
        if args.to:
            check_growing(opened.lake, recipe, args.to, args.format, exported)
        warn_of_demo(screen, opened.demo_weights)
        every = 5.0 if screen.is_terminal else Display.EVERY_SECONDS  # in a log each report is a line
        opened.progress = CaptionRate(opened, display.progress, lambda text, _: display.say(text), every)
        opened.waiting = display.waiting

        def look(found: "CaptionOutcome") -> None:
            with display.paused():
                _print_first(screen, found)
                if args.approve_first and found.left:
                    _ask(screen, found)

        version = curate_steps(opened, FirstCaptions(opened, display.run_step, look), args.retry).version
        lake = OpenLake(opened.lake)
        statuses = lake.caption_statuses(opened.plan.scorer(opened.plan.first_captions))
        faults, notes, by_demo = lake.quarantine(), opened.notes, opened.demo_weights
    made = ", ".join(f"{n:,} {status}" for status, n in statuses.items()) or "none: there is no picture"
    by = f", by [yellow]{MARK}[/]" if by_demo else ""
    screen.print(f"\ncaptions in {shown(args.lake)}: {shown(made)}{by}")
    print_notes(screen, notes)
    if faults:
        reasons = Counter()
        for fault in faults:
            reasons[fault.reason] += fault.items
        said = ", ".join(f"{n:,} {reason}" for reason, n in reasons.most_common())
        screen.print(f"in quarantine: {said}; pairmill quarantine --lake {shown(args.lake)} says what")
    if args.to:
        others = [f"{n:,} {status}" for status, n in statuses.items() if status != "ok"]
        also = f"; left out, as they stand in the lake: {', '.join(others)}" if others else ""
        text = "caption" if args.format == "webdataset" else "text1"
        with create_or_open(args.lake) as lake:
            place = "captions", version, args.to, args.format
            said = export_visibly(screen, lake, place, "captions", text=text, grow=True)
        screen.print(shown(f"{said}{also}"))
    return 0


def _print_first(screen: Console, found: "CaptionOutcome") -> None:
    """Print the first captions and the path of their HTML strip."""
    for row in found.captions[:PRINTED]:
        flag = "" if row["status"] == "ok" else f"[yellow]{shown(row['status'])}[/] "
        flag = DEMO + flag if found.is_demo else flag
        screen.print(f"  [dim]{shown(row['address'] or row['sha256'])}[/]  {flag}{shown(row['text'])}")
    left = f"{counted(found.left, 'pictures')} left"
    screen.print(f"the first {len(found.captions):,} captions: {shown(found.said)}; {left}")
    if found.strip:
        screen.print(f"strip   {shown(found.strip)}")


def _ask(screen: Console, found: "CaptionOutcome") -> None:
    """Ask whether to caption the remaining images. Raises NotApproved unless the answer is yes."""
    screen.print(f"caption the other {found.left:,}? [y/n] ", end="", markup=False)
    sys.stdout.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise NotApproved(found.refused)
