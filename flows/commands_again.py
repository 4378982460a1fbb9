"""`pairmill fetch` and `pairmill replay`: addresses, and quarantined items, that get another try."""

from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from catalog import links, quarantine, runs
from catalog.error import PairmillError
from catalog.lake import Lake, create_or_open
from catalog.recipe import Recipe
from catalog.recipe_parts import Fetch
from flows.commands_run import compute_of, overrides
from flows.settings import load_recipe
from flows.terminal import console, table
from tasks.session import Session


def fetch(args: Namespace) -> int:
    """Ask for addresses that the lake knows: the new ones, or those that failed and may answer another time."""
    with _again(args, "fetch") as session:
        from flows.display import Display
        from tasks.fetch import fetch as new
        from tasks.fetch import fetch_again

        with Display(console()) as display:
            session.progress = display.progress
            n = fetch_again(session) if args.retry_failed else _addresses(session, new)
        print(f"asked for {n:,} addresses" + ("" if n else ": none is left to ask for"))
        _tell_fetched(session.lake)
    return 0


def replay(args: Namespace) -> int:
    """Try again what is quarantined for ``--reason``, then curate with it."""
    quarantine.check(args.reason)
    screen = console()
    with _again(args, "replay") as session:
        from flows.display import Display
        from flows.outcome import outcome, tell
        from flows.replay import replay_steps

        before = _waiting(session.lake, args.reason)
        with Display(screen) as display:
            session.progress = display.progress
            published = replay_steps(session, args.reason, display.carry_out)
        after = _waiting(session.lake, args.reason)
    tell(screen, outcome(args.lake, f"{published.name}@{published.version}"), session.notes, published.is_new)
    print(f"replayed '{args.reason}': {before:,} were in quarantine for it, {after:,} are")
    return 0


@contextmanager
def _again(args: Namespace, flow: str) -> Iterator[Session]:
    """A session without sources, by the recipe that is named or that of the newest run."""
    if not Path(args.lake).exists():  # opened for writing, a lake that is not there would be made
        raise PairmillError(f"there is no lake at '{args.lake}'. Check --lake.")
    with create_or_open(args.lake) as lake:
        from flows.opening import held
        from tasks import scorers

        recipe = load_recipe(args.recipe, overrides(args.set), args.models) if args.recipe else runs.latest_recipe(lake)
        with held(lake, scorers.plan(_fetching(recipe)), compute_of(args), flow) as session:
            yield session


def _fetching(recipe: Recipe) -> Recipe:
    """Who says fetch means it, whatever the recipe says; its limits hold."""
    return recipe if recipe.fetch is not None else recipe.model_copy(update={"fetch": Fetch.model_validate({})})


def _addresses(session: Session, new) -> int:
    n = links.count_unfetched(session.lake)
    new(session)
    return n


def _waiting(lake: Lake, reason: str) -> int:
    return sum(kind.n for kind in quarantine.kinds(lake) if kind.reason == reason)


def _tell_fetched(lake: Lake) -> None:
    made = table("addresses of this lake", ["outcome", "example"], ["addresses", "may pass"])
    for outcome, example, n, passing in links.outcomes(lake):
        made.add_row(outcome, example, f"{n:,}", f"{passing:,}" if passing else "·")
    console().print(made)
