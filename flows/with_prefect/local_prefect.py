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
    "PREFECT_WORKER_QUERY_SECONDS": "2",  # 10 by default, which a person would have to wait
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
}


@contextmanager
def server() -> Iterator[tuple[str, list[Child]]]:
    """Yield the API's URL and the child processes started: the configured server, else one that runs during the body.

    Raises PairmillError if the configured server does not answer or a new one does not start.
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
    """Start a server and wait until it answers; return it with its API's URL.

    The port is PORT. If another program has that port, or takes it while the server starts (a second `pairmill up`),
    use any free port.
    """
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
    """Return whether this child listens on the port and its API answers."""
    return listens(child, port) and answers(api)


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


def prepare(client, api: str) -> list[str]:
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
    """Return whether a deployment is missing, has another folder or module, or another parameter schema."""
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
    """Return whether a server answers. A server that asks for credentials (a proxy, Prefect Cloud) counts."""
    try:
        with urllib.request.urlopen(f"{api}/health", timeout=5):
            return True
    except urllib.error.HTTPError as error:
        return error.code < 500
    except OSError:
        return False


def free_port(wanted: int) -> int:
    """Return port ``wanted`` if it is free, else any free port."""
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
    """Return the folder of the children's logs, in PREFECT_HOME."""
    from prefect.settings import get_current_settings

    return Path(get_current_settings().home) / "pairmill"
