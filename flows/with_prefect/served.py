"""Serve the deployments of prefect.yaml, and schedule the nightly maintenance of a lake.

As a program, `python -m pairmill.flows.with_prefect.served`, this module registers the deployments and starts their
runs. A person's changes in Prefect's interface (schedules, parameters, a pause) stay.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import yaml

from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.run.settings import ROOT
from pairmill.flows.with_prefect.local_prefect import UP_SECONDS, logs
from pairmill.flows.with_prefect.processes import Child, start, stop, wait_for

if TYPE_CHECKING:  # Prefect, 1.3 s
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.responses import DeploymentResponse
    from prefect.deployments.runner import RunnerDeployment

MAINTENANCE = "maintain/nightly"
NIGHTLY = "30 4 * * *"
OF_ITS_USER = {"schedules", "parameters", "paused"}


def deployments() -> dict[str, dict[str, Any]]:
    """Map the name of each deployment of prefect.yaml, such as 'curate/demo', to its settings."""
    content = yaml.safe_load((ROOT / "prefect.yaml").read_text(encoding="utf-8"))
    return {f"{each['entrypoint'].rpartition('.')[2]}/{each['name']}": each for each in content["deployments"]}


@contextmanager
def serving(client: "SyncPrefectClient", api: str, lake: str) -> Iterator[Child]:
    """Serve the deployments in a child process during the ``with`` block, and yield that process.

    Runs write to ``lake`` unless they name another lake. Raises PairmillError if the process does not come up.
    """
    before = _read_last_poll(client)
    environment = {"PAIRMILL_LAKE": lake, "PREFECT_API_URL": api}
    child = start("prefect serve", ["pairmill.flows.with_prefect.served"], environment, logs(), ROOT)
    try:
        wait_for(child, lambda: _read_last_poll(client) not in (None, before), UP_SECONDS)
        yield child
    finally:
        stop(child)


def check_no_work_pool(client: "SyncPrefectClient", api: str) -> None:
    """Raise PairmillError if one of the deployments belongs to a work pool on the server, whose workers run it."""
    for name in deployments():
        found = _read(client, name)
        if found is not None and (pool := found.work_pool_name):
            raise PairmillError(
                f"the Prefect server at {api} has '{name}' in the work pool '{pool}', and `pairmill up` serves no such "
                f"deployment: prefect worker start --pool {pool} runs it, prefect deployment delete {name} gives it up."
            )


def maintain_nightly(client: "SyncPrefectClient", lake: str) -> str:
    """Schedule the nightly maintenance of a lake; return a line about it, '' if the lake has a schedule already."""
    from prefect.client.schemas.actions import DeploymentScheduleCreate
    from prefect.client.schemas.schedules import CronSchedule

    found, slug = client.read_deployment_by_name(MAINTENANCE), f"pairmill-{sha256(lake.encode()).hexdigest()[:12]}"
    if any(each.slug == slug for each in found.schedules):
        return ""
    schedule, parameters = CronSchedule(cron=NIGHTLY, timezone="UTC"), {"lake": lake}
    new = DeploymentScheduleCreate(schedule=schedule, active=True, parameters=parameters, slug=slug)
    client.create_deployment_schedules(found.id, [new])
    return f"scheduled {MAINTENANCE} of {lake}: every day at 04:30 UTC"


def _read(client: "SyncPrefectClient", name: str) -> "DeploymentResponse | None":
    """Look up a deployment by FLOW/NAME on the Prefect server; None if it is not registered."""
    from prefect.exceptions import ObjectNotFound

    try:
        return client.read_deployment_by_name(name)
    except ObjectNotFound:
        return None


def _read_last_poll(client: "SyncPrefectClient") -> Any:
    """Return when a serving process last asked for runs, first with all deployments registered; None if never."""
    found = _read(client, MAINTENANCE)
    return found and found.last_polled


def _to_serve(settings: dict[str, Any]) -> "RunnerDeployment":
    """Build a deployment that leaves OF_ITS_USER as they are on a server that has it already."""
    from prefect.client.schemas.objects import ConcurrencyLimitConfig
    from prefect.deployments.runner import RunnerDeployment

    same = {name: settings[name] for name in ("entrypoint", "name", "description", "tags", "parameters")}
    limit = ConcurrencyLimitConfig.model_validate(settings["concurrency_limit"])
    made = RunnerDeployment.from_entrypoint(**same, concurrency_limit=limit)
    made.model_fields_set.difference_update(OF_ITS_USER)  # Prefect sends the fields that are set
    return made


if __name__ == "__main__":
    from prefect import serve

    serve(*map(_to_serve, deployments().values()), pause_on_shutdown=False, print_starting_message=False)
