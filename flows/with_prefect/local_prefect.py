"""Find or start a Prefect server: the configured one, that of a running `pairmill up`, or a new one."""

import os
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.run.settings import ROOT
from pairmill.flows.with_prefect.processes import Child, listens, start, stop, wait_for

UP_SECONDS = 180.0  # a server answers in 6 to 12 s on a quiet machine of two CPUs
ENVIRONMENT = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "PREFECT_RUNNER_POLL_FREQUENCY": "2",  # 10 by default, which a person would have to wait
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
    # The server deletes runs that ended 30 days ago, with their logs and artifacts; by itself it deletes events alone.
    "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
    "PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD": str(30 * 24 * 3600),
}
UNSET = "unset it (where a profile sets it: PREFECT_PROFILE=ephemeral)"
ANY_HOST = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # a server listens there, and a client connects here


@contextmanager
def server(say: Callable[[str], None], port: int = 0) -> Iterator[tuple[str, list[Child]]]:
    """Use the configured Prefect server, else run a new one during the ``with`` block.

    Yields the URL of its API, and the child processes that were started: none, or the new server. ``say`` is called
    with one line for each step. ``port`` is that of a new server; 0 means PREFECT_SERVER_API_PORT, else 4200, or a free
    port if 4200 is taken. Raises PairmillError if the configured server does not answer, a new one does not start, or
    its port is taken.
    """
    os.environ.update({name: value for name, value in ENVIRONMENT.items() if name not in os.environ})
    from prefect.settings import PREFECT_API_URL, get_current_settings, temporary_settings  # 1.3 s

    if configured := get_current_settings().api.url:
        if port:
            raise PairmillError(
                f"--port is for a new server, but PREFECT_API_URL names {configured}. Leave out --port, or {UNSET}."
            )
        if not answers(configured):
            raise PairmillError(
                f"Prefect's server at {configured} does not answer. Check PREFECT_API_URL, or {UNSET} to have one "
                "started here."
            )
        say(f"using the Prefect server at {configured}")
        yield configured, []
        return
    child, api = _start_server(port, say)
    _address_file().write_text(api, encoding="utf-8")
    try:
        with temporary_settings({PREFECT_API_URL: api}):
            yield api, [child]
    finally:
        if _read_address() == api:  # a second `pairmill up` replaces the address
            _address_file().unlink(missing_ok=True)
        stop(child)


def known_server() -> str:
    """Return the API's URL of the configured Prefect server, else of this user's running `pairmill up`, else ''."""
    from prefect.settings import get_current_settings

    return get_current_settings().api.url or _read_address()


def _start_server(port: int, say: Callable[[str], None]) -> tuple[Child, str]:
    """Start a server, and return it with its API's URL.

    If another program has the port, or takes it meanwhile, it is started on any free one, unless the user chose the
    port: then PairmillError is raised.
    """
    from prefect.settings import get_current_settings

    settings = get_current_settings().server.api
    wanted, is_chosen = port or settings.port, bool(port) or "port" in settings.model_fields_set
    host = ANY_HOST.get(settings.host, f"[{settings.host}]" if ":" in settings.host else settings.host)
    free = free_port(wanted, settings.host)
    api = f"http://{host}:{free}/api"
    if is_chosen and free != wanted:
        api = f"http://{host}:{wanted}/api"
        use = f"use the Prefect server there by `export PREFECT_API_URL={api}`, or " if answers(api) else ""
        raise PairmillError(f"port {wanted} of {settings.host} is taken; {use}give another by --port.")
    command = ["prefect", "server", "start", "--host", settings.host, "--port", str(free)]
    child = start("prefect server", command, {"PREFECT_API_URL": api}, logs(), ROOT)
    try:
        say(f"starting Prefect's server at {api}, with its log in {child.log}; at first it makes its database")
        began = time.monotonic()
        wait_for(child, lambda: listens(child, free) and answers(api), UP_SECONDS)
        say(f"the server answers after {time.monotonic() - began:.0f} s")
        return child, api
    except BaseException as error:
        stop(child)
        if not isinstance(error, PairmillError) or free_port(free, settings.host) == free:
            raise
    return _start_server(port, say)


def answers(api: str) -> bool:
    """Return whether a server answers at the API's URL, be it with a request for credentials."""
    try:
        with urllib.request.urlopen(f"{api}/health", timeout=5):
            return True
    except urllib.error.HTTPError as error:
        return error.code < 500
    except OSError:
        return False


def free_port(wanted: int, host: str = "127.0.0.1") -> int:
    """Return port ``wanted`` of this machine's address ``host`` if it is free, else any free port.

    Raises PairmillError if the machine has no such address.
    """
    for port in (wanted, 0):
        try:
            family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
            with socket.socket(family) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
                return probe.getsockname()[1]
        except OSError as error:
            refused = error
    raise PairmillError(f"no server can listen at '{host}' ({refused}); correct PREFECT_SERVER_API_HOST.")


def logs() -> Path:
    """Return the folder of the child processes' logs, in PREFECT_HOME."""
    from prefect.settings import get_current_settings

    return Path(get_current_settings().home) / "pairmill"


def _address_file() -> Path:
    """Return the file with the API's URL of the server that `pairmill up` runs."""
    return logs() / "server-address.txt"


def _read_address() -> str:
    """Return the content of the address file, '' without one."""
    try:
        return _address_file().read_text(encoding="utf-8")
    except OSError:
        return ""
