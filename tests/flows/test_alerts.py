"""Check that a real Prefect server sends each alert about our runs to a webhook on loopback.

Prefect sends an alert at least once: if the answer is late, as on a loaded machine, it calls the webhook again.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.settings import PREFECT_API_URL, temporary_settings

from pairmill.flows.with_prefect import alerts

RUNS = f"""
import sys
from prefect import flow, tags, task
from prefect.states import Cancelled, Completed, Crashed, Failed
from pairmill.flows.with_prefect.alerts import StallAlerts, report_quarantine

@flow
def ended(n):
    state = states[n]
    if state.name == "Quarantined":
        report_quarantine(0.4, 0.1, "demo")
        return Completed(message=state.message)
    if state.name == "Stalled":
        task(lambda: StallAlerts().stalled("caption", "worker process 7 had 'a'"), name="caption")()
        return Completed(message="went on")
    return state

states = [Failed(message='no "source"'), Crashed(message="gone"), Cancelled(name="Stopped", message="8 hours"),
          Completed(name="Quarantined", message="40 %"), Completed(name="Stalled", message="went on"),
          Completed(message="done"), Cancelled(name="Refused", message="held"), Cancelled(message="by a person")]
for mine in (True, False):
    with tags(*(["{alerts.TAG}"] if mine else ["others"])):
        for n, state in enumerate(states if mine else states[:5]):  # the first five are alerts of ours
            name = f"{{'ours' if mine else 'theirs'}} {{state.name}}"
            ended.with_options(flow_run_name=name)(n, return_state=True)
"""


@contextmanager
def receiver() -> Iterator[tuple[str, list[dict]]]:
    """Yield the address of an HTTP server and the JSON bodies that it receives."""
    bodies: list[dict] = []

    class Receives(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            return None

    with ThreadingHTTPServer(("127.0.0.1", 0), Receives) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/alerts", bodies
        server.shutdown()


@pytest.fixture
def client(prefect_api: str) -> Iterator[SyncPrefectClient]:
    with temporary_settings({PREFECT_API_URL: prefect_api}), get_client(sync_client=True) as found:
        yield found
        for about in alerts.ALERTS:
            for each in found.read_automations_by_name(f"pairmill: a run {about}"):
                found.delete_automation(each.id)


@pytest.mark.slow  # 40 s: a Prefect server, and runs that end in each way
@pytest.mark.timeout(600)
def test_each_alert_arrives_for_our_runs_and_for_no_other(client: SyncPrefectClient, tmp_path: Path) -> None:
    assert alerts.install_alerts(client) == []  # nobody wants alerts
    with receiver() as (url, bodies):
        Webhook(url=url, allow_private_urls=True).save(alerts.BLOCK, overwrite=True)  # pyright: ignore[reportArgumentType]
        assert len(alerts.install_alerts(client)) == len(alerts.ALERTS) and alerts.install_alerts(client) == []
        time.sleep(5)  # the server's triggers load new automations
        environment = os.environ | {"PREFECT_API_URL": str(client.api_url), "PREFECT_HOME": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-c", RUNS], env=environment, capture_output=True, text=True, timeout=300
        )
        assert "Traceback" not in done.stderr.partition("ended")[0], done.stderr
        deadline = time.monotonic() + 120
        while len({body["alert"] for body in _of_these(bodies)}) < len(alerts.ALERTS) and time.monotonic() < deadline:
            time.sleep(0.5)
        time.sleep(3)  # for an alert too many
    bodies = _of_these(bodies)
    assert {(body["alert"], body["run"]) for body in bodies} == {
        ("at a limit", "ours Stopped"),
        ("crashed", "ours Crashed"),
        ("failed", "ours Failed"),
        ("quarantined much", "ours Quarantined"),
        ("stalled", "ours Stalled"),
    }
    # The other two may still run when their alert is sent.
    ended = {body["alert"]: body["message"] for body in bodies if body["alert"] in ("at a limit", "crashed", "failed")}
    assert ended == {"at a limit": "8 hours", "crashed": "gone", "failed": 'no "source"'}
    assert {body["report"] for body in bodies} == {"", "caption: worker process 7 had 'a'"}


def _of_these(bodies: list[dict]) -> list[dict]:
    """Return the alerts about runs of RUNS: other tests end runs of theirs at the same server."""
    return [body for body in bodies if body["run"].startswith(("ours ", "theirs "))]
