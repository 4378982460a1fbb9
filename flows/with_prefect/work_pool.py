"""Prepare a Prefect server for `pairmill up`: the work pool, the deployments of prefect.yaml, and a worker."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path

import yaml

from pairmill.flows.run.settings import ROOT
from pairmill.flows.with_prefect.local_prefect import UP_SECONDS, logs
from pairmill.flows.with_prefect.processes import Child, finish, start, stop

POOL = "curate-pool"


@contextmanager
def worker(api: str, lake: str) -> Iterator[Child]:
    """Run a worker on the pool during the body; its runs write to ``lake`` unless they name another lake."""
    environment = {"PAIRMILL_LAKE": str(Path(lake).expanduser().absolute()), "PREFECT_API_URL": api}
    command = ["prefect", "worker", "start", "--pool", POOL, "--type", "process"]
    child = start("prefect worker", command, environment, logs(), ROOT)
    try:
        yield child
    finally:
        stop(child)


def prepare(client, api: str, say: Callable[[str], None]) -> list[str]:
    """Create the missing work pool, deployments and heartbeat automation; return the names of new deployments.

    A current deployment keeps the parameters and schedules that its user set. Raises PairmillError if `prefect deploy`
    fails.
    """
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound

    from pairmill.flows.with_prefect.heartbeats import watch

    try:
        client.read_work_pool(POOL)
    except ObjectNotFound:
        with suppress(ObjectAlreadyExists):  # another `up` created it meanwhile
            client.create_work_pool(WorkPoolCreate(name=POOL, type="process"))
    watch(client)
    names = [name for name in deployments() if _is_stale(client, name)]
    if names:
        say("making the deployments")
        chosen = [part for name in names for part in ("--name", name.partition("/")[2])]
        command = ["prefect", "--no-prompt", "deploy", "--prefect-file", str(ROOT / "prefect.yaml"), *chosen]
        finish(start("prefect deploy", command, {"PREFECT_API_URL": api}, logs(), ROOT), UP_SECONDS)
    return names


def deployments() -> list[str]:
    """List the deployments of prefect.yaml, such as 'curate/demo'."""
    return list(_entrypoints())


def _entrypoints() -> dict[str, str]:
    """Map each deployment of prefect.yaml, such as 'curate/demo', to the dotted path of its flow."""
    content = yaml.safe_load((ROOT / "prefect.yaml").read_text(encoding="utf-8"))
    return {f"{each['entrypoint'].rpartition('.')[2]}/{each['name']}": each["entrypoint"]
            for each in content["deployments"]}  # fmt: skip


def _is_stale(client, name: str) -> bool:
    """Return whether a deployment is missing, or differs in folder, module or form, or lacks a concurrency limit."""
    from prefect.exceptions import ObjectNotFound
    from prefect.utilities.callables import parameter_schema

    try:
        found = client.read_deployment_by_name(name)
    except ObjectNotFound:
        return True
    folder = f"'directory': '{ROOT}'"
    entrypoint = _entrypoints()[name]
    module, _, flow = entrypoint.rpartition(".")
    form = parameter_schema(getattr(import_module(module), flow).fn).model_dump_for_openapi()
    moved = folder not in str(found.pull_steps) or found.entrypoint != entrypoint
    # the server stores no empty parts of a form
    changed = found.parameter_openapi_schema != {name: part for name, part in form.items() if part}
    return moved or changed or found.global_concurrency_limit is None
