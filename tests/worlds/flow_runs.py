"""Run flows as a worker does: the run is made at the server first, with its name and parameters. Also as a script.

The script reads a JSON list of [flow's dotted path, parameters, name or ''] and one of [dotted path, value]: constants
that its process has instead. It writes a list of name, state and message.
"""

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple


class Ended(NamedTuple):
    """A flow run at its end."""

    id: str
    name: str
    state: str
    message: str


def ended(
    api: str, home: Path, asked: list[tuple[str, dict[str, Any], str]], constants: dict[str, Any] | None = None
) -> list[Ended]:
    """Run Prefect flows in a new process, one after the other; return the end state of each.

    ``constants`` are values by dotted path that the process has instead.
    """
    environment = os.environ | {"PREFECT_API_URL": api, "PREFECT_HOME": str(home)}
    command = [sys.executable, "-m", "tests.worlds.flow_runs", json.dumps(asked)]
    command += [json.dumps(list((constants or {}).items())), str(home / "ended.json")]
    home.mkdir(exist_ok=True)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return [Ended(*each) for each in json.loads((home / "ended.json").read_text())]


def _main(asked: list[list[Any]], constants: list[tuple[str, Any]], out: Path) -> None:
    """Run each flow, and write how it ended."""
    for path, value in constants:
        module, _, name = path.rpartition(".")
        setattr(import_module(module), name, value)
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
    _main(json.loads(sys.argv[1]), json.loads(sys.argv[2]), Path(sys.argv[3]))
