"""Run Prefect for `pairmill up`: a server unless one is configured, a work pool, deployments, a worker."""

import os
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path

import yaml

from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.settings import ROOT
from pairmill.flows.with_prefect.processes import Child, finish, listens, start, stop, wait_for

POOL = "curate-pool"
PORT = 4200
UP_SECONDS = 180.0  # a server answers in 6 to 12 s on a quiet machine of two CPUs
ENVIRONMENT = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "PREFECT_WORKER_QUERY_SECONDS": "2",  # 10 by default, all of which a person would wait
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
}


@contextmanager
def server() -> Iterator[tuple[str, list[Child]]]:
    """Yield the API's URL and the children started: the configured server, else one that runs during the body.

    Raises PairmillError when the configured server does not answer or a new one does not start.
    """
    os.environ.update({name: value for name, value in ENVIRONMENT.items() if name not in os.environ})
    from prefect.settings import PREFECT_API_URL, get_current_settings, temporary_settings

    if configured := get_current_settings().api.url:
        if not answers(configured):
            raise PairmillError(
                f"Prefect's server at {configured} does not answer. Check PREFECT_API_URL, or unset it to have one "
                "started here."
            )
        yield configured, []
        return
    child, api = _started()
    try:
        with temporary_settings({PREFECT_API_URL: api}):
            yield api, [child]
    finally:
        stop(child)


def _started() -> tuple[Child, str]:
    """Start a server, and return it with its API's URL once it answers: on PORT, or on any port where another program
    has that one, or takes it while the server starts (a second `pairmill up`)."""
    port = free_port(PORT)
    while True:
        api = f"http://127.0.0.1:{port}/api"
        command = ["prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
        child = start("prefect server", command, {"PREFECT_API_URL": api}, logs(), ROOT)
        try:
            wait_for(child, partial(_serves, child, port, api), UP_SECONDS)
            return child, api
        except BaseException as error:
            stop(child)
            was_taken = port == PORT and free_port(PORT) != PORT
            if not (was_taken and isinstance(error, PairmillError)):
                raise
            port = free_port(0)


def _serves(child: Child, port: int, api: str) -> bool:
    return listens(child, port) and answers(api)


@contextmanager
def worker(api: str, lake: str) -> Iterator[Child]:
    """Run a worker on the pool during the body; its runs write to ``lake`` unless they name another."""
    environment = {"PAIRMILL_LAKE": str(Path(lake).expanduser().absolute()), "PREFECT_API_URL": api}
    command = ["prefect", "worker", "start", "--pool", POOL, "--type", "process"]
    child = start("prefect worker", command, environment, logs(), ROOT)
    try:
        yield child
    finally:
        stop(child)


def prepare(client, api: str) -> list[str]:
    """Create the work pool, deployments and heartbeat automation that are missing; return the names deployed.

    A deployment that is up to date is left alone, with the parameters and schedules that its user gave it. Raises
    PairmillError when `prefect deploy` fails.
    """
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound

    from pairmill.flows.with_prefect.heartbeats import watch

    try:
        client.read_work_pool(POOL)
    except ObjectNotFound:
        with suppress(ObjectAlreadyExists):  # another `up` made it in between
            client.create_work_pool(WorkPoolCreate(name=POOL, type="process"))
    watch(client)
    names = [name for name in deployments() if _is_stale(client, name)]
    if names:
        chosen = [part for name in names for part in ("--name", name.partition("/")[2])]
        command = ["prefect", "--no-prompt", "deploy", "--prefect-file", str(ROOT / "prefect.yaml"), *chosen]
        finish(start("prefect deploy", command, {"PREFECT_API_URL": api}, logs(), ROOT), UP_SECONDS)
    return names


def deployments() -> list[str]:
    """List the deployments of prefect.yaml, as 'curate/demo'."""
    return list(_entrypoints())


def _entrypoints() -> dict[str, str]:
    """Map each deployment of prefect.yaml, as 'curate/demo', to the flow that it runs, by its module."""
    content = yaml.safe_load((ROOT / "prefect.yaml").read_text(encoding="utf-8"))
    return {f"{each['entrypoint'].rpartition('.')[2]}/{each['name']}": each["entrypoint"]
            for each in content["deployments"]}  # fmt: skip


def _is_stale(client, name: str) -> bool:
    """Whether the deployment is missing, of another folder or module, or has another form of parameters."""
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
    return moved or found.parameter_openapi_schema != form


def answers(api: str) -> bool:
    """Whether a server answers; one that asks for credentials (a proxy, Prefect Cloud) does."""
    try:
        with urllib.request.urlopen(f"{api}/health", timeout=5):
            return True
    except urllib.error.HTTPError as error:
        return error.code < 500
    except OSError:
        return False


def free_port(wanted: int) -> int:
    """Return port ``wanted`` if nothing listens there, else any free one."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return probe.getsockname()[1]
    raise AssertionError("a port that the system chooses is free")


def logs() -> Path:
    """Return the folder for the children's logs, below PREFECT_HOME."""
    from prefect.settings import get_current_settings

    return Path(get_current_settings().home) / "pairmill"
