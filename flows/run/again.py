"""Open a session for work that is done again, `fetch` and `replay`: by the newest run's recipe unless one is named."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, update_wrapper
from pathlib import Path

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import check_is_lake, create_or_open
from pairmill.catalog.pending import fetches, quarantine
from pairmill.catalog.recipe.parts_of_reading import Fetch
from pairmill.catalog.recipe.plan import Plan, compile_plan
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms.error import BadRecipe
from pairmill.catalog.write import runs
from pairmill.catalog.write.scorer import Scorer
from pairmill.flows.curate import RunStep
from pairmill.flows.run.model_size import check_sizes
from pairmill.flows.run.run_start import resolve_sources, session_on
from pairmill.flows.run.settings import Compute
from pairmill.tasks.collect.fetch import fetch, fetch_again
from pairmill.tasks.collect.ingest import ingest
from pairmill.tasks.run.place import identity
from pairmill.tasks.run.session import Session

Identify = Callable[[Plan], tuple[Plan, list[Scorer]]]


@contextmanager
def replay_session(named: Recipe | None, reason: str, lake: str, compute: Compute) -> Iterator[Session]:
    """Yield a session in which items of ``reason`` can be replayed. Raises PairmillError if it is no reason."""
    quarantine.check_reason(reason)
    with _session(named, (), lake, compute, "replay", identity.with_scorers) as session:
        yield session


@contextmanager
def fetch_session(named: Recipe | None, sources: Sequence[str], lake: str, compute: Compute) -> Iterator[Session]:
    """Yield a session that fetches. It has no scorers: a machine that only fetches needs no weights."""
    with _session(named, sources, lake, compute, "fetch", lambda plan: (plan, [])) as session:
        yield session


def fetch_steps(session: Session, run_step: RunStep, retry_failed: bool) -> int:
    """Ingest the session's sources, then fetch; return the number of addresses that were asked for.

    Fetches the new addresses, or with ``retry_failed`` those whose failure may pass. Where the run allows private
    networks, addresses that were blocked are fetched again.
    """
    run_step(ingest, session)
    if retry_failed:
        n = run_step(fetch_again, session)
    else:
        n = fetches.count_unfetched(session.lake)
        run_step(fetch, session)
    blocked = update_wrapper(partial(fetch_again, reason="blocked_address"), fetch_again)
    return n + (run_step(blocked, session) if session.allow_addresses else 0)


def count_quarantined(lake: Lake, reason: str) -> int:
    """Count the items quarantined for ``reason``."""
    return sum(count.n for count in quarantine.fault_counts(lake) if count.reason == reason)


@contextmanager
def _session(
    named: Recipe | None, sources: Sequence[str], lake: str, compute: Compute, flow: str, identify: Identify
) -> Iterator[Session]:
    """Open a session with the named recipe, else the newest run's.

    Raises PairmillError if the lake is missing, or has no run and so no recipe.
    """
    checked = _checked(named, identify, compute) if named else None
    uris = resolve_sources(named, sources) if named and sources else tuple(sources)
    if uris and not named and not Path(lake).expanduser().exists():
        raise BadRecipe(f"there is no lake at '{lake}' with a recipe to use; name one: pairmill {flow} 30m …")
    if not (named and uris):
        check_is_lake(lake)
    with create_or_open(lake) as opened:
        checked = checked or _checked(runs.latest_recipe(opened), identify, compute)
        with session_on(opened, checked, compute, flow, uris) as session:
            yield session


def _checked(recipe: Recipe, identify: Identify, compute: Compute) -> tuple[Plan, list[Scorer]]:
    """Compile the plan, check that models and prices of the compute settings fit it, and identify its scorers."""
    plan = compile_plan(_with_fetch_settings(recipe))
    check_sizes(compute.models, compute.max_cost, plan)
    return identify(plan)


def _with_fetch_settings(recipe: Recipe) -> Recipe:
    """Return the recipe with default fetch settings if it has none."""
    return recipe if recipe.fetch is not None else recipe.model_copy(update={"fetch": Fetch.model_validate({})})
