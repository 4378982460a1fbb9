"""Run flows as a worker does: the run is made at the server first, with its name and parameters. Also as a script.

The script reads a JSON list of [flow's dotted path, parameters, name or ''], and writes one of name, state and message.
"""

import json
import os
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient


class Ended(NamedTuple):
    """A flow run at its end."""

    id: str
    name: str
    state: str
    message: str


def ended(api: str, home: Path, asked: list[tuple[str, dict[str, Any], str]]) -> list[Ended]:
    """Run Prefect flows in a new process, one after the other; return the end state of each."""
    environment = os.environ | {"PREFECT_API_URL": api, "PREFECT_HOME": str(home)}
    command = [sys.executable, "-m", "tests.worlds.flow_runs", json.dumps(asked), str(home / "ended.json")]
    home.mkdir(exist_ok=True)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return [Ended(*each) for each in json.loads((home / "ended.json").read_text())]


def answer(client: "SyncPrefectClient", run: UUID, given: dict[str, Any]) -> None:
    """Resume a paused run with the values of its form, as the Resume button of Prefect does.

    A run pauses before Prefect stores its form: until then the server rejects every answer, and its client says so by a
    status alone.
    """
    deadline = time.monotonic() + 60
    while (done := client.resume_flow_run(run, run_input=given)).status != "ACCEPT":
        assert "schema not found" in str(done.details) and time.monotonic() < deadline, done
        time.sleep(0.2)


def _main(asked: list[list[Any]], out: Path) -> None:
    """Run each flow, and write how it ended."""
    from prefect.client.orchestration import get_client
    from prefect.flow_engine import run_flow

    found = []
    with get_client(sync_client=True) as client:
        for path, parameters, name in asked:
            module, _, attribute = path.rpartition(".")
            flow = getattr(import_module(module), attribute)
            made = client.create_flow_run(flow, parameters=parameters, **({"name": name} if name else {}))
            run_flow(flow, flow_run=made, return_type="state")
            run = client.read_flow_run(made.id)
            assert run.state is not None
            found.append((str(run.id), run.name, run.state.name, run.state.message or ""))
    out.write_text(json.dumps(found))


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]), Path(sys.argv[2]))
