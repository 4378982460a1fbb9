"""Define the replay and fetch flows that Prefect deploys, with their forms. Keep this module cheap to import."""

from typing import Annotated, Any, Literal

from prefect import flow, get_run_logger
from prefect.states import Completed, State
from pydantic import Field

from pairmill.catalog.terms.reasons import REASONS
from pairmill.flows.run.settings import Compute, default_lake, load_recipe
from pairmill.flows.with_prefect.deployments import RecipeName, Setting, SourceUri, ended_early, yaml_text
from pairmill.flows.with_prefect.run_names import name_run

RecipeOrNewest = Annotated[Literal[""], Field(title="The newest run's")] | RecipeName
Reason = Annotated[str, Field(json_schema_extra={"enum": [*REASONS]})]


@flow(name="replay")
def replay(
    reason: Reason,
    lake: str = "",
    recipe: RecipeOrNewest = "",
    models: Literal["recipe", "demo"] = "recipe",
    overrides: dict[str, Setting] = {},  # noqa: B006 (Prefect shows the default in its form; nothing here changes it)
    compute: Compute = Compute(wait_minutes=60),  # pyright: ignore[reportCallIssue]  # noqa: B008
) -> State:
    """Try the items again that are in quarantine for one reason, then curate with them.

    Args:
        reason: Why the items are in quarantine.
        lake: The lake's folder or its lake.yaml; empty means the worker's PAIRMILL_LAKE, then lake/.
        recipe: A recipe's name or the path of its YAML file; empty means the newest run's.
        models: 'demo' swaps in the small models that ship. It needs a recipe.
        overrides: Settings of the recipe to override, by dotted key. They need a recipe.
        compute: Where and how wide the run works.
    """
    try:
        place = lake or default_lake()
        name_run(f"replay {reason}")
        return _replayed(_named(recipe, overrides, models), reason, place, compute)
    except Exception as error:
        return ended_early(error)


@flow(name="fetch")
def fetch(
    sources: list[SourceUri] = [],  # noqa: B006
    lake: str = "",
    recipe: RecipeOrNewest = "",
    retry_failed: bool = False,
    overrides: dict[str, Setting] = {},  # noqa: B006
    compute: Compute = Compute(wait_minutes=60),  # pyright: ignore[reportCallIssue]  # noqa: B008
) -> State:
    """Fetch the pictures that documents link to. It loads no model.

    Args:
        sources: Folders, files, s3://bucket/prefix or https://host/list to list first, into a lake that may be new.
            Write an address with a secret as ${NAME}, a variable of the worker's environment.
        lake: The lake's folder or its lake.yaml; empty means the worker's PAIRMILL_LAKE, then lake/.
        recipe: A recipe's name or the path of its YAML file; empty means the newest run's.
        retry_failed: Fetch those again that failed for a passing reason: time-outs, 429, 5xx, lost connections.
        overrides: Settings of the recipe to override, by dotted key, such as fetch.per_host. They need a recipe.
        compute: Where and how wide the run works, and which private networks it may contact.
    """
    try:
        place = lake or default_lake()
        name_run("fetch again" if retry_failed else "fetch")
        return _fetched(_named(recipe, overrides), sources, place, compute, retry_failed)
    except Exception as error:
        return ended_early(error)


def _named(recipe: str, overrides: dict[str, Setting], models: str = "recipe") -> Any:
    """Load the named recipe, None for none. Raises BadRecipe if settings change a recipe that is not named."""
    from pairmill.catalog.terms.error import BadRecipe

    if recipe:
        return load_recipe(recipe, {key: yaml_text(value) for key, value in overrides.items()}, models)
    if overrides or models != "recipe":
        raise BadRecipe("`overrides` and `models` change a recipe; name it in `recipe`.")
    return None


def _replayed(recipe: Any, reason: str, lake: str, compute: Compute) -> State:
    """Run the replay flow and create the artifacts of its dataset; return Completed with what is left."""
    from pairmill.flows.replay import replay_steps
    from pairmill.flows.run.again import count_quarantined, replay_session
    from pairmill.flows.run.outcome import outcome
    from pairmill.flows.with_prefect.artifacts import ProgressArtifacts, create_artifacts
    from pairmill.flows.with_prefect.step_as_task import as_task

    with replay_session(recipe, reason, lake, compute) as session:
        session.progress = bars = ProgressArtifacts()
        session.waiting = bars.waiting
        before = count_quarantined(session.lake, reason)
        published = replay_steps(session, reason, as_task)
        after = count_quarantined(session.lake, reason)
    _warn(session.notes)
    found = outcome(lake, f"{published.name}@{published.version}")
    create_artifacts(found)
    return Completed(
        message=f"'{reason}': {before:,} were in quarantine for it, {after:,} are; {found.dataset}: "
        f"{published.n_pairs:,} pairs, {'published' if published.is_new else 'unchanged'}"
    )


def _fetched(recipe: Any, sources: list[str], lake: str, compute: Compute, retry_failed: bool) -> State:
    """Run the fetch flow; return Completed with the number of addresses and the outcomes of the lake's."""
    from pairmill.catalog.pending import fetches
    from pairmill.flows.run.again import fetch_session, fetch_steps
    from pairmill.flows.with_prefect.artifacts import ProgressArtifacts
    from pairmill.flows.with_prefect.step_as_task import as_task

    with fetch_session(recipe, sources, lake, compute) as session:
        session.progress = bars = ProgressArtifacts()
        session.waiting = bars.waiting
        n = fetch_steps(session, as_task, retry_failed)
        outcomes = ", ".join(f"{count:,} {outcome}" for outcome, _, count, _ in fetches.outcomes(session.lake))
    _warn(session.notes)
    return Completed(message=f"asked for {n:,} addresses; of the lake's: {outcomes or 'none'}")


def _warn(notes: list[str]) -> None:
    """Log what a run found worth saying."""
    from pairmill.catalog.terms.controls import visible

    for note in notes:
        get_run_logger().warning(visible(note))
