"""Implement `pairmill fetch` and `pairmill replay`: fetch addresses, and retry quarantined items."""

from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import check_is_lake, create_or_open
from pairmill.catalog.pending import fetches, quarantine
from pairmill.catalog.recipe.parts_of_reading import Fetch
from pairmill.catalog.recipe.plan import Plan, compile_plan
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms.controls import visible
from pairmill.catalog.terms.error import BadRecipe
from pairmill.catalog.write import runs
from pairmill.catalog.write.scorer import Scorer
from pairmill.flows.command.pairmill_run import compute_of, named_recipe, warn_of_demo
from pairmill.flows.command.terminal import console, shown, table
from pairmill.flows.model_size import check_sizes
from pairmill.flows.settings import Compute
from pairmill.tasks.run.session import Session

Identify = Callable[[Plan], tuple[Plan, list[Scorer]]]


def fetch_addresses(args: Namespace) -> int:
    """Ingest ``--source``, then fetch new addresses, or with ``--retry-failed`` those with a transient failure.

    With ``--allow-address``, also retry the addresses that were blocked.
    """
    if args.models != "recipe" and not args.recipe:
        raise BadRecipe(
            "--set and --models change a recipe; a fetch loads no model, so leave --models out, or name it before "
            "them: RECIPE --models …"
        )
    with _open_session(args, "fetch", _without_scorers) as session:
        from pairmill.flows.command.display import Display
        from pairmill.tasks.collect.fetch import fetch, fetch_again
        from pairmill.tasks.collect.ingest import ingest

        with Display(console()) as display:
            session.progress = display.progress
            ingest(session)
            new = fetches.count_unfetched(session.lake)
            n = fetch_again(session) if args.retry_failed else new
            if not args.retry_failed:
                fetch(session)
            if args.allow_address:
                n += fetch_again(session, "blocked_address")
        print(f"asked for {n:,} addresses" + ("" if n else ": none is left to ask for"))
        for note in session.notes:
            print(visible(f"note: {note}"))
        _print_fetch_outcomes(session.lake)
    return 0


def replay(args: Namespace) -> int:
    """Retry the items quarantined for ``--reason``, then curate with them."""
    quarantine.check_reason(args.reason)
    screen = console()
    from pairmill.tasks.run import identity

    with _open_session(args, "replay", identity.with_scorers) as session:
        from pairmill.flows.command.display import Display
        from pairmill.flows.command.outcome_text import print_outcome
        from pairmill.flows.outcome import outcome
        from pairmill.flows.replay import replay_steps

        warn_of_demo(screen, session.demo_weights)
        before = _count_quarantined(session.lake, args.reason)
        with Display(screen) as display:
            session.progress, session.waiting = display.progress, display.waiting
            published = replay_steps(session, args.reason, display.run_step)
        after = _count_quarantined(session.lake, args.reason)
    print_outcome(screen, outcome(args.lake, f"{published.name}@{published.version}"), session.notes, published.is_new)
    print(f"replayed '{args.reason}': {before:,} were in quarantine for it, {after:,} are")
    return 0


@contextmanager
def _open_session(args: Namespace, flow: str, identify: Identify) -> Iterator[Session]:
    """Open a session with the command line's recipe, else the newest run's, and the command line's sources.

    Raises PairmillError if the lake is missing, or has no run and so no recipe.
    """
    from pairmill.flows.run_start import resolve_sources, session_on

    named, compute = named_recipe(args), compute_of(args)
    checked = _checked(named, identify, compute) if named else None
    uris = resolve_sources(named, args.source) if named and args.source else tuple(args.source)
    if uris and not named and not Path(args.lake).expanduser().exists():
        raise BadRecipe(f"there is no lake at '{args.lake}' with a recipe to use; name one: pairmill {flow} 30m …")
    if not (named and uris):
        check_is_lake(args.lake)
    with create_or_open(args.lake) as lake:
        checked = checked or _checked(runs.latest_recipe(lake), identify, compute)
        with session_on(lake, checked, compute, flow, uris) as opened:
            yield opened


def _checked(recipe: Recipe, identify: Identify, compute: Compute) -> tuple[Plan, list[Scorer]]:
    """Compile the plan, check that models and prices of the command line fit it, and identify its scorers."""
    plan = compile_plan(_with_fetch_settings(recipe))
    check_sizes(compute.models, compute.max_cost, plan)
    return identify(plan)


def _without_scorers(plan: Plan) -> tuple[Plan, list[Scorer]]:
    """Return the plan and no scorers: a machine that only fetches needs no weights."""
    return plan, []


def _with_fetch_settings(recipe: Recipe) -> Recipe:
    """Return the recipe with default fetch settings if it has none."""
    return recipe if recipe.fetch is not None else recipe.model_copy(update={"fetch": Fetch.model_validate({})})


def _count_quarantined(lake: Lake, reason: str) -> int:
    """Count the items quarantined for ``reason``."""
    return sum(count.n for count in quarantine.fault_counts(lake) if count.reason == reason)


def _print_fetch_outcomes(lake: Lake) -> None:
    """Print the number of addresses by fetch outcome."""
    made = table("addresses of this lake", ["outcome", "example"], ["addresses", "may pass"])
    for outcome, example, n, passing in fetches.outcomes(lake):
        made.add_row(shown(outcome), shown(example), f"{n:,}", f"{passing:,}" if passing else "·")
    console().print(made)
