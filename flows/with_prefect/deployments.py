"""Define the Prefect flow `curate` and the form of its parameters. Keep this module cheap to import."""

import logging
import re
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, Literal

from prefect import flow, get_run_logger
from prefect.exceptions import CancelledRun, FailedRun
from prefect.states import Cancelled, Completed, Failed, State
from pydantic import AfterValidator, BeforeValidator, Field

from pairmill.catalog.terms.error import BudgetSpent, LeaseHeld, NotApproved, did_you_mean
from pairmill.catalog.terms.reasons import REASONS
from pairmill.flows.run.demo_models import demo_note
from pairmill.flows.run.settings import RECIPES, Compute, default_lake, load_runnable
from pairmill.flows.with_prefect.run_names import name_by_result, name_run

NAMES = sorted(file.stem for file in RECIPES.glob("*.yaml"))
_FILE = r"^.+\.ya?ml$"


def _is_known(name: str) -> str:
    """Validate the name of a recipe that ships."""
    if name in NAMES:
        return name
    remedy = did_you_mean(name, NAMES) or f"there are {', '.join(NAMES)}."
    raise ValueError(f"no recipe '{name}' ships; {remedy} A path of your own ends in .yaml.")


# Prefect's form shows the first as a list to choose from, and the second as a text.
ShippedRecipe = Annotated[
    str, AfterValidator(_is_known), Field(title="A recipe that ships", json_schema_extra={"enum": [*NAMES]})
]
RecipeFile = Annotated[str, Field(title="or a path", pattern=_FILE, description="A recipe's YAML file.")]
RecipeName = ShippedRecipe | RecipeFile
_SOURCE = r"^([a-z][a-z0-9_]{2,31}:)?((s3|file)://.+|https?://[^/?#@]+(/[^?#]*)?(\?\$\{\w+\})?|/|/?[^:/][^:]*)$"


def _is_place(uri: Any) -> Any:
    """Validate a source in words: the pattern, which Prefect's form checks by itself, explains nothing."""
    if isinstance(uri, str) and not re.match(_SOURCE, uri):
        raise ValueError(
            "a source is a folder, a file, s3://bucket/prefix or https://host/list, also after FORMAT:. An address "
            "takes its user, signature or token from the worker's environment: ${NAME}."
        )
    return uri


# Prefect stores and shows parameters, so an address with a user or a signature is refused.
_SECRETS = "https://host/list?${TOKEN} or ${NAME} takes a secret from the worker's environment."
SourceUri = Annotated[str, Field(pattern=_SOURCE, description=_SECRETS), BeforeValidator(_is_place)]
Setting = str | int | float | bool
Reason = Annotated[str, Field(pattern=f"^({'|'.join(REASONS)})?$", json_schema_extra={"enum": ["", *REASONS]})]


@flow(name="curate")
def curate(
    recipe: RecipeName = "demo",
    sources: list[SourceUri] = [],  # noqa: B006 (Prefect shows the default in its form; nothing here changes it)
    lake: str = "",
    models: Literal["recipe", "demo"] = "recipe",
    overrides: dict[str, Setting] = {},  # noqa: B006
    retry: Reason = "",
    approve_thresholds: bool = False,
    approve_hours: Annotated[int, Field(ge=1, le=24 * 31)] = 24 * 14,
    compute: Compute = Compute(wait_minutes=60),  # pyright: ignore[reportCallIssue]  # noqa: B008
) -> State:
    """Curate a dataset: ingest, score, group, associate, balance, caption, publish. Completed work is not repeated.

    A first run needs `sources` at most; all that follows `lake` is advanced.

    Args:
        recipe: One of 100m, 15m, 30m, captions, demo and folder, or the path of a recipe's YAML file.
        sources: Folders, files, s3://bucket/prefix or https://host/list to ingest, also as FORMAT:PLACE; none means the
            recipe's own. Write an address with a secret as ${NAME}, a variable of the worker's environment.
        lake: The lake's folder or its lake.yaml; empty means the worker's PAIRMILL_LAKE, then lake/.
        models: Advanced. 'demo' swaps in the small models that ship, to try a recipe out.
        overrides: Advanced; empty changes nothing. Settings of the recipe by dotted key, such as balance.cap or
            images.short_side.keep.
        retry: Advanced; empty retries nothing. Try again what is in quarantine for this reason, then curate with it.
            Only `sources` are read then, not the recipe's own.
        approve_thresholds: Advanced. Pause before texts are generated, with pictures from both sides of each threshold,
            until a person resumes the run by approved or changed thresholds. A recipe that only captions pauses when
            its first 200 captions are made. The lake is free meanwhile.
        approve_hours: Advanced. How long that waits; then the run ends as Declined.
        compute: Advanced; as it is, the run takes all CPUs and GPUs of its worker's machine, without Ray or limits.
    """
    try:
        name_run(about := Path(recipe).stem)
        # The form gives values; an override of a recipe is YAML text.
        texts = {key: value if isinstance(value, str) else str(value).lower() for key, value in overrides.items()}
        chosen, notes = load_runnable(recipe, texts, models)
        place = lake or default_lake()
        answer = ""
        if approve_thresholds:
            from pairmill.flows.with_prefect.gate import through_gate

            chosen, given = through_gate(chosen, sources, place, compute, approve_hours, retry)
            answer, retry = str(given), ""  # the gate's pass has retried
        return _run_curate(about, chosen, notes, sources, place, compute, retry, answer)
    except Exception as error:
        return ended_early(error)


def ended_early(error: Exception) -> State:
    """Return the Prefect state of a run that an ``error`` ended: Failed with the message, if the user can fix it.

    A run that found the lake leased is Refused, one that a person did not approve is Declined, and one at a limit of
    its budget is Stopped: these have Prefect's type CANCELLED, since nothing has failed. Raises any other error again.
    """
    from pairmill.flows.user_error import user_message

    if (line := user_message(error)) is None:
        raise error
    for name in ("prefect.flow_runs", "prefect.engine"):
        logging.getLogger(name).addFilter(_is_news)
    names = {LeaseHeld: "Refused", NotApproved: "Declined", BudgetSpent: "Stopped"}
    if name := next((name for kind, name in names.items() if isinstance(error, kind)), None):
        get_run_logger().warning(line)
        return Cancelled(name=name, message=line)
    get_run_logger().error(line)
    return Failed(message=line)


def _is_news(record: logging.LogRecord) -> bool:
    """Return whether a record is no traceback of a run's own final state, which Prefect's engine raises and logs."""
    return not (record.exc_info and isinstance(record.exc_info[1], (FailedRun, CancelledRun)))


def _run_curate(
    about: str, recipe: Any, notes: list[str], sources: list[str], lake: str, compute: Compute, retry: str, answer: str
) -> State:
    """Run curate, named ``about`` at first, and create its artifacts; record a person's ``answer`` at the gate."""
    from pairmill.catalog.lake.opening import create_or_open
    from pairmill.catalog.terms.controls import visible
    from pairmill.catalog.terms.demo_weights import MARK
    from pairmill.flows.api.opened_lake import OpenLake
    from pairmill.flows.curate import curate_steps
    from pairmill.flows.run.approval import FirstCaptions
    from pairmill.flows.run.caption_rate import CaptionRate
    from pairmill.flows.run.outcome import outcome_in
    from pairmill.flows.run.run_start import session
    from pairmill.flows.with_prefect import artifacts
    from pairmill.flows.with_prefect.alerts import StallAlerts, report_quarantine
    from pairmill.flows.with_prefect.step_as_task import GrowingFunnel, forward_worker_log

    with ExitStack() as held:
        with forward_worker_log(get_run_logger()):  # that it waits for another run; each step forwards its own
            opened = held.enter_context(session(recipe, sources, lake, compute, retry=retry))
        if line := demo_note(opened.demo_weights):
            get_run_logger().warning(line)
        opened.notes += notes
        if answer:
            opened.tell(answer)
        opened.progress = bars = artifacts.ProgressArtifacts()
        opened.waiting = bars.waiting
        opened.observe(StallAlerts())
        run_step: Any = GrowingFunnel()
        if recipe.only_captions:
            opened.progress = CaptionRate(opened, bars, artifacts.RateArtifact(), every=10.0)
            run_step = FirstCaptions(opened, run_step, artifacts.create_first_captions)
        published = curate_steps(opened, run_step, retry)
        share = OpenLake(opened.lake).quarantined_share(opened.writer.run_id)
        report_quarantine(share, compute.quarantine_alert, published.name)
    for note in opened.notes:
        get_run_logger().warning(visible(note))
    with create_or_open(lake, read_only=True) as published_in:
        found = outcome_in(published_in, f"{published.name}@{published.version}")
    artifacts.create_artifacts(found)
    said = "published" if published.is_new else "unchanged"
    name_by_result(about, f"{found.dataset}" if published.is_new else f"{found.dataset} unchanged")
    by = f", by {MARK}" if found.demo_weights else ""
    return Completed(message=f"{found.dataset}: {published.n_pairs} pairs, {said}{by}")
