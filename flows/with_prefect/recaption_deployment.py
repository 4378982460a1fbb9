"""Define the recaption flow that Prefect deploys, with its form. Keep this module cheap to import."""

from pathlib import Path
from typing import Any, Literal

from prefect import flow, get_run_logger
from prefect.flow_runs import pause_flow_run
from prefect.input import RunInput
from prefect.states import Completed, State

from pairmill.flows.run.settings import Compute, default_lake, load_recipe
from pairmill.flows.with_prefect.deployments import RecipeName, Setting, SourceUri, ended_early, yaml_text
from pairmill.flows.with_prefect.run_names import name_run

WAIT_SECONDS = 14 * 24 * 3600  # two weeks of holidays; then the run fails, and can be run again to continue
POLL_SECONDS = 5


class Approval(RunInput):
    """The answer to the first captions: the form behind the run's Resume button."""

    approve: bool = False


@flow(name="recaption")
def recaption(
    sources: list[SourceUri] = [],  # noqa: B006 (Prefect shows the default in its form; nothing here changes it)
    lake: str = "",
    recipe: RecipeName = "30m",
    to: str = "",
    format: Literal["webdataset", "parquet", "texts"] = "webdataset",
    retry: str = "",
    approve_first: bool = False,
    models: Literal["recipe", "demo"] = "recipe",
    overrides: dict[str, Setting] = {},  # noqa: B006
    compute: Compute = Compute(wait_minutes=60),  # pyright: ignore[reportCallIssue]  # noqa: B008
) -> State:
    """Caption every image of a lake and of sources by the first captioner of a recipe. The recipe's rules do not apply.

    Args:
        sources: Folders, files, s3://bucket/prefix or https://host/list to ingest, also as FORMAT:PLACE; none means the
            lake's own images. Write an address with a secret as ${NAME}, a variable of the worker's environment.
        lake: The lake's folder or its lake.yaml; empty means the worker's PAIRMILL_LAKE, then lake/.
        recipe: One of 100m, 15m, 30m, demo and folder, or the path of a recipe's YAML file.
        to: A folder or s3://bucket/prefix to export the captions to; empty means no export.
        format: webdataset is tars of picture, caption and JSON; parquet is tables with the pictures; texts is the same
            tables without.
        retry: A quarantine reason, whose items are tried again.
        approve_first: Pause when the first 200 captions are shown, until a person resumes the run.
        models: 'demo' swaps in the small models that ship, to try it out.
        overrides: Settings of the recipe to override, by dotted key, such as captioners.main.prompt.
        compute: Where and how wide the run works.
    """
    try:
        name_run(f"recaption by {Path(recipe).stem}")
        texts = {key: yaml_text(value) for key, value in overrides.items()}
        chosen = load_recipe(recipe, texts, models)
        return _recaptioned(chosen, sources, lake or default_lake(), compute, to, format, retry, approve_first)
    except Exception as error:
        return ended_early(error)


def _recaptioned(
    recipe: Any,
    sources: list[str],
    lake: str,
    compute: Compute,
    to: str,
    format: Literal["webdataset", "parquet", "texts"],
    retry: str,
    approve_first: bool,
) -> State:
    """Run the recaption flow and create its artifacts; return Completed with the captions by status."""
    from pairmill.catalog.queries.captioned import by_status
    from pairmill.catalog.terms.controls import visible
    from pairmill.flows.recaption import recaption_session, recaption_steps
    from pairmill.flows.run.caption_rate import CaptionRate
    from pairmill.flows.run.demo_models import demo_note
    from pairmill.flows.with_prefect.artifacts import ProgressArtifacts, RateArtifact, create_first_captions
    from pairmill.flows.with_prefect.stall_alerts import StallAlerts
    from pairmill.flows.with_prefect.step_as_task import as_task

    def look(found: Any) -> None:
        create_first_captions(found)
        if approve_first and found.left:
            _wait_for_a_person(found)

    with recaption_session(recipe, sources, lake, compute) as session:
        if line := demo_note(session.demo_weights):
            get_run_logger().warning(line)
        bars = ProgressArtifacts()
        session.observe(StallAlerts())
        session.progress, session.waiting = CaptionRate(session, bars, RateArtifact(), every=10.0), bars.waiting
        exported = recaption_steps(session, as_task, look, to, format, retry)
        statuses = by_status(session.lake, session.plan.scorer(session.plan.of_captioner("captions", 0)))
    for note in session.notes:
        get_run_logger().warning(visible(note))
    made = ", ".join(f"{n:,} {status}" for status, n in statuses.items()) or "none"
    also = f"; {visible(exported.said)}" if exported else ""
    return Completed(message=f"captions: {made}{also}")


def _wait_for_a_person(found: Any) -> None:
    """Pause the run until a person resumes it, and keep its lease. Raises NotApproved unless it is approved."""
    from pairmill.catalog.terms.error import NotApproved

    asked = (
        f"The first {len(found.captions):,} captions ({found.said}) are among the run's artifacts. Tick `approve` to "
        f"caption the other {found.left:,}; without it the run ends here."
    )
    get_run_logger().info(f"paused: {asked}")
    form = Approval.with_initial_data(description=asked)
    answer = pause_flow_run(wait_for_input=form, timeout=WAIT_SECONDS, poll_interval=POLL_SECONDS)
    if not answer.approve:
        raise NotApproved(found.refused)
