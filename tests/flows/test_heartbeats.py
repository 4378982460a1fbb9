"""Runs that were killed with nobody left to report it, on a real Prefect server that others use too."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.events.schemas.automations import AutomationCore
from prefect.settings import PREFECT_API_URL, temporary_settings

from pairmill.flows.with_prefect import alerts

RUN = """
import os, sys, time
from prefect import flow, tags

@flow(name=sys.argv[1])
def doomed():
    time.sleep(8)  # its first heartbeat is sent meanwhile
    os.kill(os.getpid(), 9)

with tags(*sys.argv[2:]):
    doomed()
"""


@pytest.fixture(scope="module")
def client(prefect_api: str) -> Iterator[SyncPrefectClient]:
    with temporary_settings({PREFECT_API_URL: prefect_api}), get_client(sync_client=True) as found:
        yield found


def kill_a_run(client: SyncPrefectClient, folder: Path, name: str, *tags: str) -> None:
    """Run a flow that sends heartbeats and is killed."""
    environment = os.environ | {"PREFECT_API_URL": str(client.api_url), "PREFECT_HOME": str(folder),
                                "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30"}  # fmt: skip
    done = subprocess.run([sys.executable, "-c", RUN, name, *tags], env=environment, capture_output=True, timeout=300)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


def states(client: SyncPrefectClient) -> dict[str, str]:
    names = {flow.id: flow.name for flow in client.read_flows()}
    found = {names[run.flow_id]: str(run.state_name) for run in client.read_flow_runs()}
    return {name: state for name, state in found.items() if name in ("ours", "theirs")}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_killed_run_of_ours_becomes_crashed_and_others_of_the_same_server_are_left_alone(
    client: SyncPrefectClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(alerts, "HEARTBEAT_SECONDS", 4)
    alerts.watch_heartbeats(client)
    kill_a_run(client, tmp_path, "theirs", "nightly")
    kill_a_run(client, tmp_path, "ours", alerts.TAG)
    deadline = time.monotonic() + 180
    while states(client)["ours"] == "Running" and time.monotonic() < deadline:
        time.sleep(1)
    assert states(client) == {"ours": "Crashed", "theirs": "Running"}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_older_automation_that_watches_everybody_is_brought_up_to_date(client: SyncPrefectClient):
    alerts.watch_heartbeats(client)
    (found,) = client.read_automations_by_name(alerts.NO_HEARTBEAT)
    greedy = found.trigger.model_copy(update={"match_related": {}})
    client.update_automation(found.id, AutomationCore(name=found.name, trigger=greedy, actions=found.actions))
    alerts.watch_heartbeats(client)
    alerts.watch_heartbeats(client)
    (after,) = client.read_automations_by_name(alerts.NO_HEARTBEAT)
    assert after.id == found.id and after.enabled
    assert getattr(after.trigger, "match_related") == getattr(found.trigger, "match_related")  # noqa: B009
