"""Faults of a run that Prefect runs: kills of its server, serving process and engine, and a Cancel in its interface."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx
import psutil

from infra.endure.fault_kinds import Victim
from infra.endure.trial_world import TrialWorld
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.terms.error import PairmillError
from tests.worlds import prefect_up
from tests.worlds.elsewhere import free_port

START_SECONDS, END_SECONDS = 180, 120
# What the command line of each process holds.
PROCESSES = {"server": ("server",), "serving process": ("with_prefect.served",), "engine": ("prefect", "engine")}


def killed(name: str) -> Callable[[Victim], None]:
    """Return a fault: kill -9 of the Prefect server, of the serving process, or of the run's own process."""

    def end(home: Path, api: str) -> None:
        for pid in prefect_up.of(home):
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                if all(word in " ".join(process.cmdline()) for word in PROCESSES[name]):
                    process.kill()

    return lambda victim: _strike(victim, end)


def cancelled(victim: Victim) -> None:
    """Cancel the run as the button in Prefect's interface does."""

    def end(home: Path, api: str) -> None:
        runs = httpx.post(f"{api}/flow_runs/filter", json={}).json()
        for run in (each for each in runs if each["state_type"] == "RUNNING"):
            state = {"state": {"type": "CANCELLING", "name": "Cancelling"}}
            httpx.post(f"{api}/flow_runs/{run['id']}/set_state", json=state).raise_for_status()

    _strike(victim, end)


def _strike(victim: Victim, end: Callable[[Path, str], None]) -> None:
    """Run the curation at a `pairmill up`, and let ``end`` hit it at a random moment after it has the lease."""
    home, port = victim.folder / "prefect", free_port()
    options = [each for each in victim.command if each.startswith("--set=")]
    source, lake = (victim.command[victim.command.index(name) + 1] for name in ("--source", "--lake"))
    asked, api = ("up", "--port", str(port), "--lake", lake), f"http://127.0.0.1:{port}/api"
    process = victim.start(TrialWorld.pairmill(*asked), PREFECT_HOME=str(home), PREFECT_API_URL="")
    try:
        overrides = {k: v for k, _, v in (each.removeprefix("--set=").partition("=") for each in options)}
        _start_run(api, {"sources": [source], "lake": lake, "overrides": overrides})
        _wait_for_lease(lake)
        time.sleep(victim.seconds * victim.chance.uniform(0, 0.6))
        end(home, api)
        with suppress(Exception):
            process.wait(timeout=END_SECONDS)
    finally:
        process.terminate()
        with suppress(Exception):
            process.wait(timeout=60)
        for pid in prefect_up.of(home):
            with suppress(psutil.NoSuchProcess):
                psutil.Process(pid).kill()


def _start_run(api: str, parameters: dict[str, object]) -> None:
    """Start a run of curate/demo, once the server has the deployment."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with suppress(httpx.HTTPError):
            found = httpx.get(f"{api}/deployments/name/curate/demo").raise_for_status().json()
            body = {"parameters": parameters, "state": {"type": "SCHEDULED"}}
            httpx.post(f"{api}/deployments/{found['id']}/create_flow_run", json=body).raise_for_status()
            return
        time.sleep(0.5)
    raise AssertionError("the deployment was not served")


def _wait_for_lease(lake: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with suppress(PairmillError), create_or_open(lake, read_only=True) as opened:
            if opened.query("SELECT 1 FROM lease WHERE purpose <> 'migrate'"):
                return
        time.sleep(0.5)
    raise AssertionError("the run did not begin")


PREFECT: dict[str, Callable[[Victim], None]] = {
    **{f"kill -9 of Prefect's {name}": killed(name) for name in PROCESSES},
    "Cancel in Prefect": cancelled,
}
