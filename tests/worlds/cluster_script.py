"""Run a script of `tests.worlds` that starts a Ray cluster, once for all test processes."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

from tests.worlds.shared import made_once

# The longest takes 180 s on quiet cores. One that takes as long as this prints where its threads are, and ends.
MOST_SECONDS = 900
PROGRAM = (
    f"import faulthandler, sys; faulthandler.dump_traceback_later({MOST_SECONDS}, exit=True); "
    "from tests.worlds.{name} import main; main(sys.argv[1])"
)


def told_by(name: str) -> dict[str, Any]:
    """Return the JSON that the script prints last: a process can have only one Ray, so each runs in its own."""
    return json.loads((made_once(f"told by {name}", partial(_run, name)) / "told.json").read_text())


def _run(name: str, folder: Path) -> None:
    """Run the script in ``folder`` and write what it told."""
    folder.mkdir()
    command = [sys.executable, "-c", PROGRAM.format(name=name), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=MOST_SECONDS + 100)
    told = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert told, done.stderr[-6000:]
    (folder / "told.json").write_text(told[-1])
