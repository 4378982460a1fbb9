"""Define the curate flow that Prefect deploys, with its form. Keep this module cheap to import."""

from typing import Annotated, Any, Literal

from prefect import flow, get_run_logger
from prefect.states import Cancelled, Completed, Failed, State
from pydantic import Field

from pairmill.flows.settings import RECIPES, Compute, default_lake, load_recipe, notes_on

NAMES = sorted(file.stem for file in RECIPES.glob("*.yaml"))
RecipeName = Annotated[str, Field(pattern=rf"^({'|'.join(NAMES)}|.+\.ya?ml)$", examples=NAMES)]
# A folder, a file or an address, optionally after the name of its format. Prefect stores and shows parameters, so an
# address with a user or a signature is refused: ${NAME} takes it from the worker's environment.
SourceUri = Annotated[
    str,
    Field(
        pattern=r"^([a-z][a-z0-9_]{2,31}:)?((s3|file)://.+|https?://[^/?#@]+(/[^?#]*)?(\?\$\{\w+\})?|/|/?[^:/][^:]*)$",
        description="https://host/list?${TOKEN} or ${NAME} takes a secret from the worker's environment.",
    ),
]
Setting = str | int | float | bool


@flow(name="curate", flow_run_name="{recipe}")
def curate(
    recipe: RecipeName = "demo",
    sources: list[SourceUri] = [],  # noqa: B006 (Prefect shows the default in its form; nothing here changes it)
    lake: str = "",
    models: Literal["recipe", "demo"] = "recipe",
    overrides: dict[str, Setting] = {},  # noqa: B006
    compute: Compute = Compute(wait_minutes=60),  # pyright: ignore[reportCallIssue]  # noqa: B008
) -> State:
    """Curate a dataset: ingest, score, group, associate, balance, caption, publish. Completed work is not repeated.

    Args:
        recipe: One of 100m, 15m, 30m, demo and folder, or the path of a recipe's YAML file.
        sources: Folders, files, s3://bucket/prefix or https://host/list to ingest, also as FORMAT:PLACE; none means the
            recipe's own. Write an address with a secret as ${NAME}, a variable of the worker's environment.
        lake: The lake's folder or its lake.yaml; empty means the worker's PAIRMILL_LAKE, then lake/.
        models: 'demo' swaps in the small models that ship, to try a recipe out.
        overrides: Settings of the recipe to override, by dotted key, such as balance.cap or images.short_side.keep.
        compute: Where and how wide the run works.
    """
    try:
        texts = {key: yaml_text(value) for key, value in overrides.items()}
        chosen = load_recipe(recipe, texts, models)
        notes = notes_on(chosen, recipe, texts, models)
        return _curated(chosen, notes, sources, lake or default_lake(), compute)
    except Exception as error:
        return ended_early(error)


def ended_early(error: Exception) -> State:
    """Return the state of a run that ended with an error that its user can fix: Failed, with the message.

    A run that another one kept from writing is Refused, one that a person did not approve is Declined, and one at a
    limit of its budget is Stopped. All are of Prefect's type CANCELLED: nothing has failed. Other errors are raised.
    """
    from pairmill.catalog.terms.error import BudgetSpent, LeaseHeld, NotApproved
    from pairmill.flows.user_error import user_message

    if (line := user_message(error)) is None:
        raise error
    names = {LeaseHeld: "Refused", NotApproved: "Declined", BudgetSpent: "Stopped"}
    if name := next((name for kind, name in names.items() if isinstance(error, kind)), None):
        get_run_logger().warning(line)
        return Cancelled(name=name, message=line)
    get_run_logger().error(line)
    return Failed(message=line)


def _curated(recipe: Any, notes: list[str], sources: list[str], lake: str, compute: Compute) -> State:
    """Run the curate flow and create its artifacts; return Completed with the dataset's name and size."""
    from pairmill.catalog.pending.quarantine import quarantined_share
    from pairmill.catalog.terms.controls import visible
    from pairmill.catalog.terms.demo_weights import MARK
    from pairmill.flows.curate import curate_steps
    from pairmill.flows.demo_models import demo_note
    from pairmill.flows.outcome import outcome
    from pairmill.flows.run_start import session
    from pairmill.flows.with_prefect.alerts import report_quarantine
    from pairmill.flows.with_prefect.artifacts import ProgressArtifacts, create_artifacts
    from pairmill.flows.with_prefect.stall_alerts import StallAlerts
    from pairmill.flows.with_prefect.step_as_task import as_task

    with session(recipe, sources, lake, compute) as opened:
        if line := demo_note(opened.demo_weights):
            get_run_logger().warning(line)
        opened.notes += notes
        opened.progress = bars = ProgressArtifacts()
        opened.waiting = bars.waiting
        opened.observe(StallAlerts())
        published = curate_steps(opened, as_task)
        share = quarantined_share(opened.lake, opened.writer.run_id)
        report_quarantine(share, compute.quarantine_alert, published.name)
    for note in opened.notes:
        get_run_logger().warning(visible(note))
    found = outcome(lake, f"{published.name}@{published.version}")
    create_artifacts(found)
    said = "published" if published.is_new else "unchanged"
    by = f", by {MARK}" if found.demo_weights else ""
    return Completed(message=f"{found.dataset}: {published.n_pairs} pairs, {said}{by}")


def yaml_text(value: Setting) -> str:
    """Convert a value of the form to the YAML text of a recipe override."""
    return value if isinstance(value, str) else str(value).lower()
