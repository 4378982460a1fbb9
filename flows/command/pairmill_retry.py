"""Implement `pairmill fetch` and `pairmill replay`: fetch addresses, and retry quarantined items."""

from argparse import Namespace

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending import fetches, quarantine
from pairmill.catalog.terms.controls import visible
from pairmill.catalog.terms.error import BadRecipe
from pairmill.flows.command.pairmill_run import compute_of, named_recipe, warn_of_demo
from pairmill.flows.command.terminal import console, shown, table


def fetch_addresses(args: Namespace) -> int:
    """Ingest ``--source``, then fetch new addresses, or with ``--retry-failed`` those with a transient failure.

    With ``--allow-address``, also retry the addresses that were blocked.
    """
    if args.models != "recipe" and not args.recipe:
        raise BadRecipe(
            "--set and --models change a recipe; a fetch loads no model, so leave --models out, or name it before "
            "them: RECIPE --models …"
        )
    named, compute = named_recipe(args), compute_of(args)
    from pairmill.flows.run.again import fetch_session, fetch_steps

    with fetch_session(named, args.source, args.lake, compute) as session:
        from pairmill.flows.command.display import Display

        with Display(console()) as display:
            session.progress = display.progress
            n = fetch_steps(session, display.run_step, args.retry_failed)
        print(f"asked for {n:,} addresses" + ("" if n else ": none is left to ask for"))
        for note in session.notes:
            print(visible(f"note: {note}"))
        _print_fetch_outcomes(session.lake)
    return 0


def replay(args: Namespace) -> int:
    """Retry the items quarantined for ``--reason``, then curate with them."""
    quarantine.check_reason(args.reason)
    screen, named, compute = console(), named_recipe(args), compute_of(args)
    from pairmill.flows.run.again import count_quarantined, replay_session

    with replay_session(named, args.reason, args.lake, compute) as session:
        from pairmill.flows.command.display import Display
        from pairmill.flows.command.outcome_text import print_outcome
        from pairmill.flows.replay import replay_steps
        from pairmill.flows.run.outcome import outcome

        warn_of_demo(screen, session.demo_weights)
        before = count_quarantined(session.lake, args.reason)
        with Display(screen) as display:
            session.progress, session.waiting = display.progress, display.waiting
            published = replay_steps(session, args.reason, display.run_step)
        after = count_quarantined(session.lake, args.reason)
    print_outcome(screen, outcome(args.lake, f"{published.name}@{published.version}"), session.notes, published.is_new)
    print(f"replayed '{args.reason}': {before:,} were in quarantine for it, {after:,} are")
    return 0


def _print_fetch_outcomes(lake: Lake) -> None:
    """Print the number of addresses by fetch outcome."""
    made = table("addresses of this lake", ["outcome", "example"], ["addresses", "may pass"])
    for outcome, example, n, passing in fetches.outcomes(lake):
        made.add_row(shown(outcome), shown(example), f"{n:,}", f"{passing:,}" if passing else "·")
    console().print(made)
