"""Implement `pairmill recaption`: the recaption flow in this process, with its first captions shown for approval."""

import sys
from argparse import Namespace
from collections import Counter
from typing import TYPE_CHECKING

from rich.console import Console

from pairmill.catalog.pending.quarantine import check_reason, fault_counts
from pairmill.catalog.terms.demo_weights import MARK
from pairmill.catalog.terms.error import NotApproved
from pairmill.flows.command.pairmill_run import compute_of, overrides, warn_of_demo
from pairmill.flows.command.terminal import DEMO, console, shown
from pairmill.flows.run.settings import load_recipe

if TYPE_CHECKING:
    from pairmill.flows.run.caption_outcome import CaptionOutcome

PRINTED = 12  # first captions in the terminal; the HTML strip has all


def recaption(args: Namespace) -> int:
    """Check the captioner and the sources, caption, export, and print the results."""
    screen = console()
    if args.retry:
        check_reason(args.retry)
    recipe = load_recipe(args.recipe, overrides(args.set), args.models)
    with screen.status(f"recipe '{shown(recipe.name)}': checking its captioner and the sources"):
        from pairmill.catalog.queries.captioned import by_status
        from pairmill.flows.command.display import Display
        from pairmill.flows.recaption import recaption_session, recaption_steps  # torch, 3 s
        from pairmill.flows.run.caption_rate import CaptionRate
    with recaption_session(recipe, args.source, args.lake, compute_of(args)) as session, Display(screen) as display:
        warn_of_demo(screen, session.demo_weights)
        every = 5.0 if screen.is_terminal else Display.EVERY_SECONDS  # in a log each report is a line
        session.progress = CaptionRate(session, display.progress, lambda text, _: display.say(text), every)
        session.waiting = display.waiting

        def look(found: "CaptionOutcome") -> None:
            with display.paused():
                _print_first(screen, found)
                if args.approve_first and found.left:
                    _ask(screen, found)

        exported = recaption_steps(session, display.run_step, look, args.to, args.format, args.retry)
        statuses = by_status(session.lake, session.plan.scorer(session.plan.of_captioner("captions", 0)))
        faults = fault_counts(session.lake)
    made = ", ".join(f"{n:,} {status}" for status, n in statuses.items()) or "none: there is no picture"
    by = f", by [yellow]{MARK}[/]" if session.demo_weights else ""
    screen.print(f"\ncaptions in {shown(args.lake)}: {shown(made)}{by}")
    for note in session.notes:
        screen.print(f"[yellow]note:[/] {shown(note)}")
    if faults:
        reasons = Counter()
        for fault in faults:
            reasons[fault.reason] += fault.n
        said = ", ".join(f"{n:,} {reason}" for reason, n in reasons.most_common())
        screen.print(f"in quarantine: {said}; pairmill quarantine --lake {shown(args.lake)} says what")
    if exported:
        screen.print(shown(exported.said))
    return 0


def _print_first(screen: Console, found: "CaptionOutcome") -> None:
    """Print the first captions and the path of their HTML strip."""
    for row in found.captions[:PRINTED]:
        flag = "" if row["status"] == "ok" else f"[yellow]{shown(row['status'])}[/] "
        flag = DEMO + flag if found.is_demo else flag
        screen.print(f"  [dim]{shown(row['address'] or row['sha256'])}[/]  {flag}{shown(row['text'])}")
    screen.print(f"the first {len(found.captions):,} captions: {shown(found.said)}; {found.left:,} pictures are left")
    if found.strip:
        screen.print(f"strip   {shown(found.strip)}")


def _ask(screen: Console, found: "CaptionOutcome") -> None:
    """Ask whether to caption the remaining images. Raises NotApproved unless the answer is yes."""
    screen.print(f"caption the other {found.left:,}? [y/n] ", end="", markup=False)
    sys.stdout.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise NotApproved(found.refused)
