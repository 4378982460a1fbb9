"""A fleet on a Ray cluster serves all steps and waves that need its model, and ends when another needs the room."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.worlds.shared import made_once

PROGRAM = "import sys; from tests.worlds.kept_fleets import main; main(sys.argv[1])"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]  # the first waits for the cluster


def _tell(folder: Path) -> None:
    """Run the steps on a new cluster and write what they told."""
    folder.mkdir()
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(folder)], capture_output=True, text=True, timeout=1700)
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"two rounds"')]
    assert lines, done.stderr[-3000:]
    (folder / "told.json").write_text(lines[0])


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    """How often [clip, captioner] had been loaded after each step. The tests may run in several processes."""
    return json.loads((made_once("kept-fleets", _tell) / "told.json").read_text())


def test_each_replica_loads_its_model_once_over_rounds_and_steps(told: dict[str, Any]):
    assert told["two rounds"] == told["another step"] == [2, 0]


def test_a_fleet_ends_when_another_model_needs_its_room(told: dict[str, Any]):
    assert told["another model, twice"] == [2, 2]


def test_the_fleet_of_a_step_that_failed_is_not_kept(told: dict[str, Any]):
    assert "range() arg 3" in told["bug"]
    assert told["after a failed step"] == [2, 4]


def test_no_fleet_holds_a_gpu_after_the_run(told: dict[str, Any]):
    assert told["GPUs free at the end"] == 2.0
